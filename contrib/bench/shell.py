#!/usr/bin/env python3
"""`shell/exec` of `true` against the same line in a bare terminal, both measured here, in one run.

usage: shell.py OSTLER [ROUNDS]

Bare: `true` and Enter are written to the shell's terminal, read until its next prompt. Ours: one request on an open
connection until its answer. Prints a table in Markdown: medians in microseconds, and their ratio.
"""
import os
import pty
import select
import statistics
import sys
import time

from house import House

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
        pid, self.fd = pty.fork()
        if pid == 0:
            os.execvpe(BARE[shell][0], BARE[shell], {**ENV, "PS1": PROMPT.decode(), "PROMPT": PROMPT.decode()})
        self.read()

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


class Ours:
    def __init__(self, house, shell):
        self.connection = house.connect(f"bench-{shell}")
        opened = self.connection.ask("shell/open", {"args": [shell], "clean": True, "env": ENV, "envReplace": True, "waitMs": 10000})
        self.id = opened["row"]["id"]

    def run(self):
        done = self.connection.ask("shell/exec", {"id": self.id, "line": "true"})
        assert done["exitCode"] == 0 and done["output"] == "", done


def median(run, rounds):
    for _ in range(20):
        run()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times)


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    with House(sys.argv[1]) as house:
        print("| shell | bare terminal, µs | shell/exec, µs | ratio |\n|---|---|---|---|")
        for shell in SHELLS:
            ours = median(Ours(house, shell).run, rounds)
            bare = median(Bare(shell).run, rounds) if shell in BARE else None
            ratio = f"{ours / bare:.1f}" if bare else "-"
            print(f"| {shell} | {bare and round(bare)} | {ours:.0f} | {ratio} |")


if __name__ == "__main__":
    main()
