#!/usr/bin/env python3
"""`shell/exec` of `true` against the same line in a bare terminal, both measured here, in one run.

usage: shell.py OSTLER [ROUNDS]

Bare: `true` and Enter are written to the shell's terminal, read until its next prompt. Ours: one request on an open
connection until its answer. Prints a table in Markdown: medians in microseconds, and their ratio.
"""
import json
import os
import pty
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SHELLS = ["bash", "zsh", "dash", "fish"]
PROMPT = b"READY> "
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TERM": "dumb"}
BARE = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i", "+o", "promptsp"],
    "dash": ["dash", "-i"],
}


class Bare:
    def __init__(self, shell):
        pid, self.fd = pty.fork()
        if pid == 0:
            os.execvpe(BARE[shell][0], BARE[shell], {**ENV, "PS1": PROMPT.decode(), "PROMPT": PROMPT.decode()})
        self.read()

    def read(self):
        said = b""
        while PROMPT not in said:
            if not select.select([self.fd], [], [], 10)[0]:
                raise SystemExit(f"no prompt: {said!r}")
            said += os.read(self.fd, 65536)
        # The line editor has its own way to the next key.
        while select.select([self.fd], [], [], 0)[0]:
            os.read(self.fd, 65536)

    def run(self):
        os.write(self.fd, b"true\n")
        self.read()


class Ours:
    def __init__(self, folder, shell):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(f"{folder}/ostler.sock")
        self.file = self.socket.makefile("rb")
        self.number = 0
        self.ask("session/open", {"id": f"bench-{shell}"})
        opened = self.ask("shell/open", {"args": [shell], "clean": True, "env": ENV, "envReplace": True, "waitMs": 10000})
        self.id = opened["row"]["id"]

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

    def run(self):
        done = self.ask("shell/exec", {"id": self.id, "line": "true"})
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
    ostler, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        env = {**os.environ, "OSTLER_DIR": folder}
        subprocess.run([ostler, "daemon", "start"], env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            print("| shell | bare terminal, µs | shell/exec, µs | ratio |\n|---|---|---|---|")
            for shell in SHELLS:
                ours = median(Ours(folder, shell).run, rounds)
                bare = median(Bare(shell).run, rounds) if shell in BARE else None
                ratio = f"{ours / bare:.1f}" if bare else "-"
                print(f"| {shell} | {bare and round(bare)} | {ours:.0f} | {ratio} |")
        finally:
            subprocess.run([ostler, "daemon", "stop"], env=env, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
