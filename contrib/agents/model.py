"""A model that follows a script, on loopback, in the four wire formats that agents speak.

    POST …/chat/completions                        OpenAI chat completions
    POST …/responses                               OpenAI responses
    POST …/models/NAME:streamGenerateContent       Gemini (and :generateContent)
    POST …/messages                                Anthropic messages

It keeps no state of a conversation: an agent sends the whole of it every time, and the number of results in it says
which step is next. What the agent showed of each result is kept in `shown`. Nothing but the standard library.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LAST_WORDS = "All done."


class Script:
    """Calls of tools, one a turn. `$id` in an argument is the job that the agent was shown last."""

    def __init__(self, steps):
        self.steps = steps
        #: Turn to the text that the agent showed of its result.
        self.shown = {}
        #: The agent has offered tools of ours.
        self.offered = False
        #: What went wrong here; empty in a good run.
        self.faults = []

    def next(self, results, tools):
        """The call that follows these results, as (number, name of the tool, arguments); None after the last."""
        for turn, text in enumerate(results):
            self.shown[turn] = text
        turn = len(results)
        if turn >= len(self.steps):
            return None
        tool, arguments = self.steps[turn]
        # `ostler_run`, `mcp__ostler__run`; in a namespace `mcp__ostler`, `run`.
        name = next((t for t in tools if re.search(rf"ostler[_.]+{tool}$", ".".join(t))), None)
        if name is None:
            self.faults.append(f"the agent offers no tool {tool} of ostler, but {[t[-1] for t in tools]}")
            return None
        return turn, name, {k: self.filled(v, results) for k, v in arguments.items()}

    def filled(self, value, results):
        if value != "$id":
            return value
        seen = re.search(r"\bt\d+\b", results[-1])
        if not seen:
            self.faults.append(f"no id of a job in what was shown: {results[-1]!r}")
            return ""
        return seen.group()


def text_of(content):
    """Text of a content that is a text, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return json.dumps(content)


class Chat:
    """OpenAI chat completions."""

    path = re.compile(r"/chat/completions$")

    @staticmethod
    def tools(body):
        return [(t["function"]["name"],) for t in body.get("tools", [])]

    @staticmethod
    def results(body):
        return [text_of(m["content"]) for m in body["messages"] if m["role"] == "tool"]

    @staticmethod
    def events(call, body):
        def chunk(delta, reason=None):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}
            return None, {**base, "choices": [choice]}

        if call:
            turn, name, arguments = call
            function = {"name": name[0], "arguments": json.dumps(arguments)}
            one = {"index": 0, "id": f"call_{turn}", "type": "function", "function": function}
            yield chunk({"role": "assistant", "tool_calls": [one]})
            yield chunk({}, "tool_calls")
        else:
            yield chunk({"role": "assistant", "content": LAST_WORDS})
            yield chunk({}, "stop")


class Responses:
    """OpenAI responses. A server of tools is a namespace there."""

    path = re.compile(r"/responses$")

    @staticmethod
    def tools(body):
        for tool in body.get("tools", []):
            if tool.get("type") == "namespace":
                yield from ((tool["name"], inner["name"]) for inner in tool["tools"])
            elif "name" in tool:
                yield (tool["name"],)

    @staticmethod
    def results(body):
        return [text_of(i["output"]) for i in body["input"] if i.get("type") == "function_call_output"]

    @staticmethod
    def events(call, _body):
        if call:
            turn, name, arguments = call
            item = {"type": "function_call", "id": f"f{turn}", "call_id": f"call_{turn}", "name": name[-1]}
            item["arguments"] = json.dumps(arguments)
            if len(name) > 1:
                item["namespace"] = name[0]
        else:
            words = {"type": "output_text", "text": LAST_WORDS, "annotations": []}
            item = {"type": "message", "id": "m", "role": "assistant", "content": [words]}
        used = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        response = {"id": "r", "object": "response", "output": [item], "usage": used}
        yield "response.created", {"type": "response.created", "response": {"id": "r"}}
        yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield "response.completed", {"type": "response.completed", "response": response}


class Gemini:
    """Gemini, as a stream or at once."""

    path = re.compile(r":(streamG|g)enerateContent(\?|$)")

    @staticmethod
    def tools(body):
        declared = (f for t in body.get("tools", []) for f in t.get("functionDeclarations", []))
        return [(f["name"],) for f in declared]

    @staticmethod
    def results(body):
        parts = (p for c in body["contents"] for p in c.get("parts", []))
        answers = (p["functionResponse"]["response"] for p in parts if "functionResponse" in p)
        return [a["output"] if isinstance(a.get("output"), str) else json.dumps(a) for a in answers]

    @staticmethod
    def events(call, _body):
        part = {"functionCall": {"name": call[1][0], "args": call[2]}} if call else {"text": LAST_WORDS}
        used = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        yield None, {"candidates": [candidate], "usageMetadata": used}


class Anthropic:
    """Anthropic messages."""

    path = re.compile(r"/messages(\?|$)")

    @staticmethod
    def tools(body):
        return [(t["name"],) for t in body.get("tools", [])]

    @staticmethod
    def results(body):
        parts = (p for m in body["messages"] if isinstance(m["content"], list) for p in m["content"])
        return [text_of(p["content"]) for p in parts if p.get("type") == "tool_result"]

    @staticmethod
    def events(call, body):
        if call:
            turn, name, arguments = call
            block = {"type": "tool_use", "id": f"toolu_{turn}", "name": name[0], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        else:
            block = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": LAST_WORDS}
        used = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": body.get("model"), "content": []}
        message |= {"stop_reason": None, "stop_sequence": None, "usage": used}
        stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
        for event in (
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": used},
            {"type": "message_stop"},
        ):
            yield event["type"], event


FORMATS = (Chat, Responses, Gemini, Anthropic)


class Handler(BaseHTTPRequestHandler):
    """One request: what is next, in the format of its path."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer("application/json", json.dumps({"data": [], "models": []}))

    def do_HEAD(self):
        self.answer("application/json", "")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        kind = next((f for f in FORMATS if f.path.search(self.path)), None)
        if kind is None:
            # Counts of tokens and the like: nobody needs the right number.
            return self.answer("application/json", json.dumps({"input_tokens": 1, "totalTokens": 1}))
        tools = list(kind.tools(body))
        # Without tools of ours it is the agent's own errand: a title, a summary.
        ours = any("ostler" in name[0] for name in tools)
        self.server.script.offered |= ours
        call = self.server.script.next(kind.results(body), tools) if ours else None
        events = list(kind.events(call, body))
        if kind is Gemini and "stream" not in self.path:
            return self.answer("application/json", json.dumps(events[0][1]))
        told = "".join((f"event: {n}\n" if n else "") + f"data: {json.dumps(e)}\n\n" for n, e in events)
        return self.answer("text/event-stream", told + ("data: [DONE]\n\n" if kind is Chat else ""))

    def answer(self, kind, text):
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class Model:
    """Serves a script for the length of a `with`; `url` is where."""

    def __init__(self, script):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.script = script
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
