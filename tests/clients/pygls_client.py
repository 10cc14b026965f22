"""An editor made of pygls: `pygls_client.py FOLDER PROGRAM ARG...`. Attaches, runs a job with progress, asks for one that is not
there, and leaves; prints what came of it, a line each. Everything that comes is read into lsprotocol's types."""

import asyncio
import pathlib
import sys

sys.path.insert(0, sys.argv[1])

from lsprotocol import types as lsp  # noqa: E402
from pygls.exceptions import JsonRpcException  # noqa: E402
from pygls.lsp.client import LanguageClient  # noqa: E402


async def main():
    client = LanguageClient("pygls", "2")
    seen = []

    @client.feature(lsp.WINDOW_WORK_DONE_PROGRESS_CREATE)
    def create(_):
        seen.append("create")

    @client.feature(lsp.PROGRESS)
    def progress(params):
        seen.append(params.value["kind"])
        # The job goes on when its begin was told.
        pathlib.Path("go").touch()

    await client.start_io(*sys.argv[2:])
    window = lsp.WindowClientCapabilities(work_done_progress=True)
    hello = await client.initialize_async(
        lsp.InitializeParams(
            capabilities=lsp.ClientCapabilities(window=window),
            client_info=lsp.ClientInfo(name="pygls"),
            process_id=None,
            root_uri=pathlib.Path.cwd().as_uri(),
        )
    )
    client.initialized(lsp.InitializedParams())
    print(hello.server_info.name, len(hello.capabilities.execute_command_provider.commands))

    async def execute(command, *arguments):
        params = lsp.ExecuteCommandParams(command=command, arguments=list(arguments))
        return await client.workspace_execute_command_async(params)

    result = await execute("ostler.run", "until [ -e go ]; do sleep 0.05; done; exit 3")
    print(result["exitCode"], seen[0], seen[1], seen[-1])
    try:
        await execute("ostler.tail", "t9")
    except JsonRpcException as refusal:
        print(refusal.code, refusal.message)
    await client.shutdown_async(None)
    client.exit(None)
    print("left", await client._server.wait())


asyncio.run(main())
