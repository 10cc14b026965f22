"""A house of its own for a bench, and a connection to it."""
import json
import os
import socket
import subprocess
import tempfile


class House:
    """Keeper and supervisor in a fresh folder; they end with the `with`."""

    def __init__(self, ostler):
        self.ostler = ostler
        self.folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.env = {**os.environ, "OSTLER_DIR": self.folder.name}

    def __enter__(self):
        self._daemon("start")
        return self

    def __exit__(self, *_):
        self._daemon("stop")
        self.folder.cleanup()

    def _daemon(self, verb):
        subprocess.run([self.ostler, "daemon", verb, "-q"], env=self.env, check=True, stdout=subprocess.DEVNULL)

    def owner(self):
        """A connection that sees everything."""
        connection = Connection(f"{self.folder.name}/ostler.sock", None, {})
        with open(f"{self.folder.name}/owner.key") as key:
            connection.ask("supervisor/hello", {"ownerKey": key.read().strip()})
        return connection

    def connect(self, session, **limits):
        return Connection(f"{self.folder.name}/ostler.sock", session, limits)


class Connection:
    """One request after the other, a line a message."""

    def __init__(self, path, session, limits):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")
        self.number = 0
        if session:
            self.ask("session/open", {"id": session, **limits})

    def ask(self, method, params):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.socket.sendall(json.dumps(message).encode() + b"\n")
        while True:
            answer = json.loads(self.file.readline())
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
