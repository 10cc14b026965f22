#!/usr/bin/env python3
"""`shell/exec` of `true` against the same line in a bare terminal, both measured here, in one run.

usage: shell.py OSTLER [ROUNDS]

Bare: `true` and Enter are written to the shell's terminal, read until its next prompt. Ours: one request on an open
connection until its answer; that this client, too, makes no text of either while the clock runs is the only difference
to `house.py`. Where the system puts a shell and its reader, on one CPU or on two, doubles either figure and
stays so for as long as the two live: so both are measured by turns, in new shells each time. Prints a table in Markdown:
medians in microseconds with the lowest and the highest turn, and the ratio of the medians.
"""
import json
import os
import pty
import select
import statistics
import sys
import time

from house import House

TURNS = 12
SHELLS = ["bash", "zsh", "dash", "fish"]
PROMPT = b"READY> "
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TERM": "dumb"}
BARE = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "dash": ["dash", "-i"],
}


class Bare:
    def __init__(self, shell):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(BARE[shell][0], BARE[shell], {**ENV, "PS1": PROMPT.decode(), "PROMPT": PROMPT.decode()})
        self.read()

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)

    def read(self, line=b""):
        """Reads the echo of a line and the prompt behind it, not the one that stands before it."""
        said = b""
        while line not in said or PROMPT not in said[said.index(line):]:
            if not select.select([self.fd], [], [], 10)[0]:
                raise SystemExit(f"no prompt: {said!r}")
            said += os.read(self.fd, 65536)

    def run(self):
        os.write(self.fd, b"true\n")
        self.read(b"true")

    def check(self):
        pass


class Ours:
    def __init__(self, connection, shell):
        self.connection, self.shell = connection, shell
        opened = self.connection.ask("shell/open", {"args": [shell], "clean": True, "env": ENV, "envReplace": True, "waitMs": 10000})
        self.id = opened["row"]["id"]
        request = {"jsonrpc": "2.0", "id": 0, "method": "shell/exec", "params": {"id": self.id, "line": "true"}}
        self.request = json.dumps(request).encode() + b"\n"
        self.answer = b""

    def run(self):
        self.connection.socket.sendall(self.request)
        self.answer = b""
        while not self.answer.endswith(b"\n"):
            # As the bare one waits: who sleeps in the call itself is woken in vain when its request is read.
            select.select([self.connection.socket], [], [], 10)
            self.answer += self.connection.socket.recv(65536)

    def check(self):
        done = json.loads(self.answer).get("result", {})
        if done.get("exitCode") != 0 or done["output"]:
            raise SystemExit(f"{self.shell}: {self.answer.decode()}")

    def close(self):
        self.connection.ask("shell/close", {"id": self.id})


def median(shell, rounds):
    for _ in range(20):
        shell.run()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        shell.run()
        times.append((time.perf_counter() - began) * 1e6)
        shell.check()
    return statistics.median(times)


def turn(shell, rounds):
    found = median(shell, rounds)
    shell.close()
    return found


def shown(turns):
    return f"{statistics.median(turns):.0f} ({min(turns):.0f} to {max(turns):.0f})" if turns else "-"


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    with House(sys.argv[1]) as house:
        print("| shell | bare terminal, µs | shell/exec, µs | ratio |\n|---|---|---|---|")
        for shell in SHELLS:
            connection = house.connect(f"bench-{shell}")
            bare, ours = [], []
            for _ in range(TURNS):
                if shell in BARE:
                    bare.append(turn(Bare(shell), rounds // TURNS))
                ours.append(turn(Ours(connection, shell), rounds // TURNS))
            ratio = f"{statistics.median(ours) / statistics.median(bare):.1f}" if bare else "-"
            print(f"| {shell} | {shown(bare)} | {shown(ours)} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
