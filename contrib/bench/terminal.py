#!/usr/bin/env python3
"""Terminals: capture against a raw loop over the same program, by turns, and the memory of idle shells.

usage: terminal.py OSTLER [ROUNDS]

Raw: a terminal is opened, the program forked onto it, and its master read into one buffer until its end; what Python adds
to each read of the kernel's 4 KiB is below a hundredth of it. Written: each read goes to a file as well. Ours: one `job/run` on an open connection until its answer.
"Looked at": its screen was asked for once, just after the start, and is then read by nobody. Prints two tables in Markdown:
medians in MiB/s of what comes out of the terminal with the ratios of the medians, and KiB of PSS of keeper and supervisor.
"""
import os
import pty
import statistics
import sys
import tempfile
import time

from house import House

MIB = 1 << 20
SIZE = 64 * MIB
# A line of each kind, which a file is filled with.
KINDS = {
    "without line ends": b"x" * 4096,
    "lines of text": b"2026-11-30 12:00:00 info the quick brown fox jumps over the lazy dog, once more.\n",
    "coloured lines": b"\x1b[32m   Compiling\x1b[0m some-crate \x1b[1mv1.2.3\x1b[0m (\x1b[4m/some/folder\x1b[0m)\n",
}
SHELLS = 20


def raw(args, file=None):
    began = time.perf_counter()
    pid, master = pty.fork()
    if pid == 0:
        os.execv(args[0], args)
    buffer = [bytearray(65536)]
    total = 0
    try:
        while got := os.readv(master, buffer):
            total += got
            if file:
                file.write(memoryview(buffer[0])[:got])
    except OSError:
        # The end of a terminal.
        pass
    os.waitpid(pid, 0)
    took = time.perf_counter() - began
    os.close(master)
    return took, total


def written(args):
    with tempfile.TemporaryFile(dir="/tmp", buffering=0) as file:
        return raw(args, file)


def run(connection, args, spill):
    start = {"args": args, "pty": {"rows": 24, "cols": 80}, "output": {"spill": spill}}
    began = time.perf_counter()
    done = connection.ask("job/run", {"start": start, "collect": False})
    return finish(connection, began, done)


def looked_at(connection, args):
    start = {"args": args, "pty": {"rows": 24, "cols": 80}, "output": {"spill": False}}
    began = time.perf_counter()
    row = connection.ask("job/start", start)
    connection.ask("job/screen", {"id": row["id"]})
    done = connection.ask("job/wait", {"ids": [row["id"]]})["jobs"][0]["row"]
    return finish(connection, began, done)


def finish(connection, began, row):
    took = time.perf_counter() - began
    assert row["exitCode"] == 0, row
    connection.ask("job/release", {"id": row["id"]})
    return took, row["output"]["end"]


def capture(house, rounds):
    connection = house.connect("bench-capture")
    print("| output | raw loop | ring only | ratio | looked at | ratio | raw loop, written | with spill | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind, line in KINDS.items():
        with tempfile.NamedTemporaryFile(dir="/tmp") as file:
            file.write(line * (SIZE // len(line)))
            file.flush()
            args = ["/bin/cat", file.name]
            ways = [
                lambda: raw(args),
                lambda: run(connection, args, False),
                lambda: looked_at(connection, args),
                lambda: written(args),
                lambda: run(connection, args, True),
            ]
            rates = [[] for _ in ways]
            size = None
            for _ in range(rounds):
                for way, found in zip(ways, rates):
                    took, total = way()
                    assert size in (None, total), (size, total)
                    size = total
                    found.append(total / MIB / took)
        floor, ring, looked, file, spill = map(statistics.median, rates)
        alone = f"{floor:.0f} | {ring:.0f} | {ring / floor:.2f} | {looked:.0f} | {looked / floor:.2f}"
        print(f"| {kind} | {alone} | {file:.0f} | {spill:.0f} | {spill / file:.2f} |", flush=True)


def pss(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            total += sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
    return total


def memory(house):
    connection = house.connect("bench-memory", shells=SHELLS)
    info = connection.ask("supervisor/info", {})
    pids = [info["pid"], info["keeperPid"]]
    said = [("nothing", pss(pids))]
    ids = []
    for _ in range(SHELLS):
        opened = connection.ask("shell/open", {"args": ["dash"], "clean": True, "waitMs": 10000})
        assert opened["ready"], opened
        ids.append(opened["row"]["id"])
    said.append((f"{SHELLS} idle shells (dash)", pss(pids)))
    for one in ids:
        connection.ask("shell/exec", {"id": one, "line": "true"})
    said.append(("one line in each", pss(pids)))
    for one in ids:
        connection.ask("job/screen", {"id": one})
    said.append(("one look at each screen", pss(pids)))
    first = said[0][1]
    print("| after | keeper and supervisor, KiB | a shell, KiB |\n|---|---|---|")
    for what, kib in said:
        each = f"{(kib - first) / SHELLS:.0f}" if kib != first else "-"
        print(f"| {what} | {kib} | {each} |")


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    with House(sys.argv[1]) as house:
        capture(house, rounds)
    print()
    with House(sys.argv[1]) as house:
        memory(house)


if __name__ == "__main__":
    main()
