#!/usr/bin/env python3
"""Streamable HTTP on loopback before an MCP server on standard input and output, for suites that speak HTTP only.

    contrib/agents/bridge.py PORT -- ostler mcp

A client that initializes gets a process of its own, by `mcp-session-id`; those of 2026-07-28 share one. It passes on
what is said and adds what HTTP alone has: statuses, sessions, a stream if something comes before the answer. What a
suite finds of headers and statuses is therefore true of this file, not of the server. Tools that the suite asks for
become commands of our `run` where one can do what they do: so it tries our own results, errors, progress and tasks,
and the server has no tools for tests. Only the standard library.
"""

import json
import queue
import shlex
import subprocess
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SESSION = "mcp-session-id"
NOT_FOUND, BAD_REQUEST = 404, 400
#: Codes of JSON-RPC that have a status of their own; every other error is one of the tool, and 200.
STATUS = {-32601: NOT_FOUND, -32602: BAD_REQUEST, -32600: BAD_REQUEST, -32700: BAD_REQUEST}
STATUS |= {code: BAD_REQUEST for code in (-32020, -32021, -32022)}

#: A call becomes a task after two seconds.
UNTIL_TASK = 2
STAND_INS = {
    "test_simple_text": lambda _: "echo This is a simple text response for testing.",
    # No command at all: a tool that is called wrongly is an error of the tool.
    "test_error_handling": lambda _: "",
    "greet": lambda given: "echo " + shlex.quote(f"Hello, {given['name']}!"),
    "slow_compute": lambda given: f"sleep {given['seconds'] and given['seconds'] + UNTIL_TASK}; echo computed",
}


def stand_in(request):
    """A call of a tool that we do not have, as a call of one that we have."""
    params = request.get("params")
    name = params.get("name") if request["method"] == "tools/call" and isinstance(params, dict) else None
    if name not in STAND_INS:
        return request
    command = STAND_INS[name](params.get("arguments", {}))
    return request | {"params": params | {"name": "run", "arguments": {"command": command}}}


class Process:
    """One server. Requests of many clients get ids, and tokens of progress, that do not collide."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock, self.count, self.waiting = threading.Lock(), 0, {}
        threading.Thread(target=self.read, daemon=True).start()

    def send(self, message):
        with self.lock:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def ask(self, request):
        """What the server says to this request, the answer last, with the client's own id and token."""
        with self.lock:
            self.count += 1
            key = self.count
            said = self.waiting[key] = queue.Queue()
        passed = json.loads(json.dumps(stand_in(request))) | {"id": key}
        params = passed.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if token is not None:
            meta["progressToken"] = key
        self.send(passed)
        while (message := said.get()) is not None:
            if "id" in message:
                del self.waiting[key]
                yield message | {"id": request["id"]}
                return
            if message["method"] == "notifications/progress":
                message["params"]["progressToken"] = token
            yield message
        yield {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "the server has ended"}}

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            params = message.get("params", {})
            of_stream = params.get("_meta", {}).get("io.modelcontextprotocol/subscriptionId")
            key = message.get("id", params.get("progressToken", of_stream))
            if key in self.waiting:
                self.waiting[key].put(message)
        for said in list(self.waiting.values()):
            said.put(None)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Handler(BaseHTTPRequestHandler):
    """A message by POST; a session ends by DELETE; there is no stream to GET."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        process = self.server.sessions.pop(self.headers.get(SESSION), None)
        if process:
            process.end()
        self.answer(200 if process else NOT_FOUND)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        # No page of a browser may run commands here by another name of this address.
        names = [self.headers.get("host", ""), self.headers.get("origin", "http://localhost").partition("://")[2]]
        if any(n.rpartition(":")[0] not in ("localhost", "127.0.0.1") and n != "localhost" for n in names):
            return self.answer(403)
        try:
            message = json.loads(body)
        except json.JSONDecodeError:
            return self.refuse(-32700, "no JSON")
        if not isinstance(message, dict):
            return self.refuse(-32600, "no message")
        process, headers = self.of_session(message)
        if process is None:
            return self.answer(NOT_FOUND)
        if "id" not in message or "method" not in message:
            process.send(message)
            return self.answer(202)
        return self.stream(process.ask(message), headers)

    def of_session(self, message):
        """The process for a message, and the headers of its answer."""
        server, session = self.server, self.headers.get(SESSION)
        if session:
            return server.sessions.get(session), {}
        if message.get("method") == "initialize":
            session = str(uuid.uuid4())
            server.sessions[session] = Process(server.command)
            return server.sessions[session], {SESSION: session}
        return server.shared, {}

    def stream(self, said, headers):
        first = next(said)
        if "id" in first:
            return self.answer(STATUS.get(first.get("error", {}).get("code"), 200), first, headers)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        while first is not None:
            self.wfile.write(b"event: message\ndata: " + json.dumps(first).encode() + b"\n\n")
            self.wfile.flush()
            first = next(said, None)
        return None

    def refuse(self, code, words):
        self.answer(BAD_REQUEST, {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": words}})

    def answer(self, status, message=None, headers=None):
        data = json.dumps(message).encode() if message else b""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main():
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        sys.exit(__doc__)
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.daemon_threads = True
    server.command, server.sessions = sys.argv[3:], {}
    server.shared = Process(server.command)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        for process in [server.shared, *server.sessions.values()]:
            process.end()


if __name__ == "__main__":
    main()
