"""An editor of the Agent Client Protocol, on the Python library of that protocol, which offers no terminals.

acp_client.py PROMPT AGENT [ARGUMENT...] starts the agent, sends the prompt and prints the text of every message; then
every tool call as a line of JSON. With ACP_LINE=own a line may be as long as the library allows that is told nothing.
"""

import asyncio
import json
import os
import sys

from acp import PROTOCOL_VERSION, Client, spawn_agent_process, text_block
from acp.schema import ClientCapabilities

# The library's own bound of a line is 64 KiB.
LINE = 64 * 1024 * 1024


class Editor(Client):
    def __init__(self):
        self.calls = []

    async def session_update(self, session_id, update, **_):
        kind = update.session_update
        if kind == "agent_message_chunk":
            print(update.content.text, end="", flush=True)
        elif kind.startswith("tool_call"):
            self.calls.append(update.model_dump(by_alias=True, exclude_none=True, mode="json"))


async def main(prompt, command, *args):
    editor = Editor()
    kwargs = {} if os.environ.get("ACP_LINE") == "own" else {"limit": LINE}
    async with spawn_agent_process(
        editor, command, *args, env=dict(os.environ), transport_kwargs=kwargs
    ) as (agent, process):
        await agent.initialize(
            protocol_version=PROTOCOL_VERSION, client_capabilities=ClientCapabilities(terminal=False)
        )
        session = await agent.new_session(cwd=os.getcwd(), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=[text_block(prompt)])
        await agent.close_session(session_id=session.session_id)
    for call in editor.calls:
        print(json.dumps(call))


asyncio.run(main(*sys.argv[1:]))
