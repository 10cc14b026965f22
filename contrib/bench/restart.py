#!/usr/bin/env python3
"""How long a house with many live jobs is away: after `kill -9` of its supervisor, and over an upgrade to itself.

usage: restart.py OSTLER [JOBS] [ROUNDS]

Crash: from the kill to the first answer of the next supervisor on a new connection, everything restored. Upgrade: the
longest time without an answer for a client that asks all the time, with 100 jobs. Prints medians and the worst in ms.
"""
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

from house import House


def connect(house):
    """The address is the keeper's, so that a client waits instead of being refused; a cut in the middle is asked again."""
    while True:
        try:
            return house.owner()
        except (OSError, ValueError):
            pass


def live(house, jobs):
    connection = house.connect("bench-restart", commands=2000)
    return [connection.ask("job/start", {"args": ["/bin/sleep", "1000"]})["id"] for _ in range(jobs)]


def crash(house, jobs, rounds):
    live(house, jobs)
    connection = connect(house)
    times = []
    for _ in range(rounds):
        pid = connection.ask("supervisor/info", {})["pid"]
        began = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        connection = connect(house)
        info = connection.ask("supervisor/info", {})
        times.append((time.perf_counter() - began) * 1e3)
        assert info["pid"] != pid
        rows = connection.ask("job/list", {"all": True})["jobs"]
        assert sum(row["state"] == "running" for row in rows) == jobs
        # A house forgives a crash after ten good seconds; this one is told to forgive sooner.
        time.sleep(0.2)
    return times


class Asking(threading.Thread):
    """Asks all the time, connecting anew where it must, and keeps the longest wait."""

    def __init__(self, house):
        super().__init__()
        self.house = house
        self.over = False
        self.longest = 0.0

    def run(self):
        connection = connect(self.house)
        last = time.perf_counter()
        while not self.over:
            try:
                connection.ask("supervisor/info", {})
            except (OSError, ValueError):
                connection = connect(self.house)
                continue
            now = time.perf_counter()
            self.longest = max(self.longest, now - last)
            last = now


def upgrade(house, rounds):
    live(house, 100)
    times = []
    for _ in range(rounds):
        asking = Asking(house)
        asking.start()
        subprocess.run([house.ostler, "daemon", "upgrade", "--force"], env=house.env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        asking.over = True
        asking.join()
        times.append(asking.longest * 1e3)
    return times


def row(what, times):
    print(f"| {what} | {statistics.median(times):.1f} | {max(times):.1f} |", flush=True)


def main():
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 15
    os.environ["OSTLER_STEADY_MS"] = "50"
    print("| away | median, ms | worst, ms |\n|---|---|---|")
    for many in (0, 100, jobs):
        with House(sys.argv[1]) as house:
            row(f"killed, {many} live jobs", crash(house, many, rounds))
    with House(sys.argv[1]) as house:
        row("upgraded, 100 live jobs", upgrade(house, rounds))


if __name__ == "__main__":
    main()
