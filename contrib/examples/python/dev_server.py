"""Starts a server, waits for its port, talks to it and stops it.

    python3 dev_server.py PORT CMD...        python3 dev_server.py 8000 python3 -m http.server 8000

Nothing but the standard library: JSON-RPC on a Unix socket, as proto/PROTOCOL.md has it.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid


class Refused(Exception):
    """The supervisor said no: what, why, and what next."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.kind = error["data"]["kind"]
        self.hint = error["data"].get("hint")


class Ostler:
    """A session of our own. It comes back to it when the supervisor is replaced under it."""

    def __init__(self):
        self.stream = None
        self.last_id = 0
        # Half a minute after this program is gone, however it went, what it started is stopped.
        self.session = {"leaseMs": 30_000}

    def connect(self):
        # Starts the supervisor if none runs; where it listens depends on no variable but OSTLER_DIR.
        subprocess.run(["ostler", "daemon", "start", "--quiet"], check=True)
        status = subprocess.run(["ostler", "daemon", "status", "--json"], check=True, capture_output=True)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(json.loads(status.stdout)["socket"])
        self.stream = connection.makefile("rwb")
        opened = self.exchange("session/open", self.session)
        # From now on this session and no new one in its place: its jobs are what we come back for.
        token = opened.get("token") or self.session["token"]
        self.session = {"id": opened["session"]["id"], "token": token, "attachOnly": True}

    def exchange(self, method, params):
        """One request and its answer, on the connection that there is."""
        self.last_id += 1
        request = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        body = json.dumps(request).encode()
        self.stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.stream.flush()
        while True:
            message = self.read()
            if message.get("id") == self.last_id:
                if "error" in message:
                    raise Refused(message["error"])
                return message["result"]

    def read(self):
        length = 0
        while (line := self.stream.readline()) != b"\r\n":
            if not line:
                raise ConnectionError("the supervisor closed the connection")
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = self.stream.read(length)
        if len(body) < length:
            raise ConnectionError("the supervisor closed the connection")
        return json.loads(body)

    def ask(self, method, params):
        """Asks until there is an answer, also when the supervisor is replaced meanwhile: for what may be asked twice, as a
        start with a key."""
        for attempt in range(20):
            try:
                if self.stream is None:
                    self.connect()
                return self.exchange(method, params)
            except (ConnectionError, BrokenPipeError):
                # Asked again on a new connection, with the same session and the same key.
                self.stream = None
        raise ConnectionError("the supervisor closes every connection")

    def wait_for_port(self, job, port, seconds):
        """The time counts from now, and not from each try."""
        until = time.monotonic() + seconds
        while True:
            left = max(0, int((until - time.monotonic()) * 1000))
            # A second at a time, so that a try that broke costs no more than that.
            wait = {"ids": [job], "for": {"port": port}, "timeoutMs": min(left, 1_000)}
            told = self.ask("job/wait", wait)["jobs"][0]
            if told["reason"] == "ended_before":
                raise SystemExit("it ended first: " + "\n".join(told.get("lastLines", [])))
            if told["reason"] == "port":
                return told["listener"]
            if left == 0:
                raise SystemExit(f"nobody listens on {port} after {seconds} s")


def main():
    if len(sys.argv) < 3:
        raise SystemExit("usage: dev_server.py PORT CMD...")
    port, command = int(sys.argv[1]), sys.argv[2:]
    ostler = Ostler()
    # The environment is the request's: nothing of it comes from whoever started the supervisor.
    start = {"key": uuid.uuid4().hex, "args": command, "cwd": os.getcwd(), "env": dict(os.environ), "envReplace": True}
    row = ostler.ask("job/start", start)
    if row["outcome"] == "spawn_failed":
        raise SystemExit(f"{command[0]} did not start: {row['spawnError']['message']}")
    print(f"{row['id']} runs, pid {row['pid']}", flush=True)
    try:
        listener = ostler.wait_for_port(row["processId"], port, 30)
        print(f"port {port}: {listener['program']}, pid {listener['pid']}")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
            print(f"it says {answer.status}")
    finally:
        # Answered when the whole tree is gone, to the last grandchild.
        receipt = ostler.ask("job/stop", {"ids": [row["processId"]]})["jobs"][0]
        print(f"stopped: {receipt['ended']} processes")


if __name__ == "__main__":
    try:
        main()
    except Refused as refusal:
        raise SystemExit(f"error: {refusal}" + (f"\nhint: {refusal.hint}" if refusal.hint else ""))
