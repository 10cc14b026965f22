//! Promise: clients that nobody here wrote get on with `ostler mcp`: the Python SDK in every mode, FastMCP with its tasks, the
//! Inspector. `tests/run` installs them; what cannot be had is skipped, loudly.

use std::process::{Command, Stdio};

use ostler_tests::tools::tool;
use ostler_tests::{House, in_empty_house, ostler};
use serde_json::Value;

/// Runs a client to its end and returns what it says.
fn said(house: &House, mut command: Command) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let node = tool("node/node_modules/node/bin").unwrap_or_default();
    command
        .env_clear()
        .env("PATH", format!("{}:{path}", node.display()))
        .env("HOME", house.file("."))
        .env("OSTLER_DIR", house.dir())
        .env("OSTLER_STEADY_MS", "1")
        .current_dir(house.file("."))
        .stdin(Stdio::null());
    let ended = command.output().expect("it can be executed");
    let (out, err) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    assert!(ended.status.success(), "{:?}\n{out}\n{err}", ended.status);
    out.into_owned()
}

const SDK: &str = r#"
import asyncio, os, sys
from mcp import Client, StdioServerParameters

async def main():
    names = ["OSTLER_DIR", "OSTLER_STEADY_MS"]
    server = StdioServerParameters(command=sys.argv[2], args=["mcp"], env={n: os.environ[n] for n in names})
    async with Client(server, mode=sys.argv[1]) as client:
        tools = await client.list_tools()
        print(",".join(t.name for t in tools.tools))
        told = await client.call_tool("run", {"command": "echo hi; exit 3"})
        print(told.is_error, told.structured_content["jobs"][0]["code"], told.content[0].text.splitlines()[0])
        seen = []
        async def progress(done, total, message):
            seen.append(message)
        told = await client.call_tool("run", {"command": "sleep 60", "wait_s": 6}, progress_callback=progress)
        print(told.structured_content["jobs"][0]["state"], len(seen))
        told = await client.call_tool("output", {"id": "t9"})
        print(told.is_error, told.content[0].text)

asyncio.run(main())
"#;

#[test]
fn the_python_sdk_is_served_in_every_mode() {
    let Some(python) = tool("mcp-py/bin/python") else {
        return;
    };
    for mode in ["legacy", "auto", "2026-07-28"] {
        in_empty_house(async |house| {
            let mut command = Command::new(&python);
            command.args(["-c", SDK, mode]).arg(ostler());
            assert_eq!(
                said(house, command),
                "run,output,input,stop\nFalse 3 hi\nrunning 1\nTrue not_found: no job t9. output without id lists yours.\n",
                "{mode}"
            );
        });
    }
}

const FASTMCP: &str = r#"
import asyncio, os, sys
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import call_tool_task

async def main():
    names = ["OSTLER_DIR", "OSTLER_STEADY_MS"]
    transport = StdioTransport(command=sys.argv[1], args=["mcp"], env={n: os.environ[n] for n in names})
    async with Client(transport) as client:
        task = await call_tool_task(client, "run", {"command": "sleep 3; echo done; exit 4"})
        result = await task.result()
        print(task.task_id[:5], result.content[0].text.splitlines()[0], result.structured_content["jobs"][0]["code"])

asyncio.run(main())
"#;

#[test]
fn fastmcp_gets_a_task_and_its_result() {
    let Some(python) = tool("mcp-py/bin/python") else {
        return;
    };
    in_empty_house(async |house| {
        let mut command = Command::new(&python);
        command.args(["-c", FASTMCP]).arg(ostler());
        assert_eq!(said(house, command), "proc_ done 4\n");
    });
}

#[test]
fn the_inspector_finds_nothing_to_complain_of() {
    let Some(inspector) = tool("inspector/node_modules/.bin/mcp-inspector") else {
        return;
    };
    for era in ["legacy", "modern"] {
        in_empty_house(async |house| {
            // It hands no variable on: the server would be in the house of whoever runs the tests.
            let dir = format!("OSTLER_DIR={}", house.dir().display());
            let cli = |args: &[&str]| {
                let mut command = Command::new(&inspector);
                command.args(["--cli", "env", &dir]).arg(ostler());
                command.arg("mcp").args(args);
                command.args(["--format", "json", "--protocol-era", era]);
                let said = said(house, command);
                let json: Value =
                    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
                json
            };
            for set in ["compact", "epoch", "dsh"] {
                let mut command = Command::new(&inspector);
                command
                    .args(["--cli", "env", &dir])
                    .arg(ostler())
                    .args(["mcp", "--tools", set]);
                command.args([
                    "--method",
                    "tools/list",
                    "--strict",
                    "--format",
                    "json",
                    "--protocol-era",
                    era,
                ]);
                said(house, command);
            }
            let told = cli(&[
                "--method",
                "tools/call",
                "--tool-name",
                "run",
                "--tool-arg",
                "command=echo hi",
            ]);
            let told = told.to_string();
            assert!(house.folders().socket().exists(), "it was another house");
            assert!(
                told.contains("\"output\":\"hi\\n\"") && !told.contains("\"isError\":true"),
                "{told}"
            );
        });
    }
}
