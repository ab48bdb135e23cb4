"""Runs the same echo jobs on Gristmill and on its alternatives: `make bench-peers`.

Every round starts each peer anew on loopback, with no other peer running, gives it the work, and
stops it. The table has medians over the rounds. Needs only Python 3.10."""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

import peers
import peers_postgresql
from install import Missing
from processes import Failed, Processes

# The payload's size as JSON.
BYTES = 256

# A peer is compared with the host that keeps jobs in the same place: in files, or in PostgreSQL.
BASES = [peers.Gristmill, peers_postgresql.GristmillOnPostgres]
ALL = [*peers.ALL, *peers_postgresql.ALL]
GRISTMILL = [kind for kind in ALL if issubclass(kind, peers.Gristmill)]

# No round takes this long.
ROUND_SECONDS = 300


@dataclasses.dataclass
class Work:
    gristmill: pathlib.Path
    load: pathlib.Path
    handlers: pathlib.Path
    seconds: int
    # Long enough for peers that compile or elect a leader during their first jobs.
    warm_up: int = 2
    in_flight: int = 64
    operation: str = "runsync"
    input: dict = dataclasses.field(
        default_factory=lambda: {"text": "x" * (BYTES - len('{"text":""}'))}
    )


@dataclasses.dataclass
class Entry:
    """A peer of this run, and what its rounds gave."""

    peer: peers.Peer
    needs: object
    rounds: list = dataclasses.field(default_factory=list)

    def median(self, figure):
        return statistics.median(one[figure] for one in self.rounds)


def main():
    arguments = parse()
    # SIGTERM ends the script as Ctrl-C does, with all processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = Work(
        arguments.gristmill, arguments.load, arguments.handlers, arguments.seconds,
        in_flight=arguments.in_flight, operation=arguments.operation,
    )
    running = []
    # The other peers have no counterpart of `/run`, after which the client asks for the result.
    kinds = ALL if work.operation == "runsync" else GRISTMILL
    for peer in chosen(work, kinds, arguments.only):
        try:
            running.append(Entry(peer, peer.install()))
        except Missing as reason:
            say(f"skipped: {peer.name}: {reason}")
    for number in range(arguments.rounds):
        # The order of the peers rotates.
        turn = number % len(running)
        for entry in running[turn:] + running[:turn]:
            name = entry.peer.name
            try:
                entry.rounds.append(one_round(entry))
            except (Missing, Failed) as reason:
                say(f"skipped from here on: {name}: {reason}")
                running.remove(entry)
                continue
            one = entry.rounds[-1]
            say(f"round {number + 1}: {name}: {one['jobsPerS']:.0f} jobs/s, fsync {one['fsyncMs']:.2f} ms")
    bases = [one for one in running if type(one.peer) in BASES]
    if not any(type(base.peer) is peers.Gristmill for base in bases):
        raise SystemExit("there are no figures of Gristmill to compare with")
    show(work, arguments.rounds, running, bases)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gristmill", type=pathlib.Path, help="the binary")
    parser.add_argument("load", type=pathlib.Path, help="the load generator")
    parser.add_argument("handlers", type=pathlib.Path, help="the directory of echo.wasm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="measured in each round")
    parser.add_argument("--in-flight", type=int, default=64, help="jobs at one time")
    parser.add_argument("--operation", choices=["runsync", "run"], default="runsync")
    parser.add_argument("--only", action="append", help="peers with this word in their name")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds < 1 or arguments.in_flight < 1:
        parser.error("--rounds, --seconds and --in-flight are at least 1")
    return arguments


def chosen(work, kinds, words):
    """Those of `kinds` with one of these words in their name, and those that they are compared with."""

    def is_named(kind):
        names = kind.__name__.lower(), kind.name.lower()
        return not words or any(word.lower() in name for word in words for name in names)

    is_with_postgresql = any(is_named(kind) for kind in peers_postgresql.ALL)
    bases = BASES if is_with_postgresql else BASES[:1]
    return [kind(work) for kind in kinds if is_named(kind) or kind in bases]


def one_round(entry):
    with Processes() as processes:
        fsync_ms = probe_disk(processes.directory)
        command = [str(part) for part in entry.peer.start(entry.needs, processes)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=ROUND_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failed("jobs are not answered") from None
        if done.returncode != 0:
            raise Failed(done.stderr.strip()[-2000:])
        return {**json.loads(done.stdout), "fsyncMs": fsync_ms}


def probe_disk(directory):
    """Median time of an fdatasync after 4 KiB were written: shows whether others use the disk."""
    times = []
    with (directory / "probe").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(bytes(4096))
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


def show(work, rounds, entries, bases):
    fsyncs = [one["fsyncMs"] for entry in entries for one in entry.rounds]
    print(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}; {BYTES} B payload, `/{work.operation}` of Gristmill, "
        f"{work.in_flight} in flight; medians of {rounds} interleaved rounds of {work.seconds} s after "
        f"{work.warm_up} s of warm-up; clients on the same cores; an fdatasync of 4 KiB took "
        f"{statistics.median(fsyncs):.2f} ms ({min(fsyncs):.2f}–{max(fsyncs):.2f}) before the rounds\n"
    )
    for base in bases:
        # The host without a database is in both tables.
        rows = [
            one
            for one in entries
            if one is bases[0] or (type(one.peer) in peers_postgresql.ALL) == (base is not bases[0])
        ]
        print(f"| | jobs/s | min–max | p50 ms | p99 ms | {base.peer.name} is | on disk before the answer |")
        print("|---|---|---|---|---|---|---|")
        for entry in rows:
            speeds = [one["jobsPerS"] for one in entry.rounds]
            speed = entry.median("jobsPerS")
            print(
                f"| {entry.peer.name} | {speed:,.0f} | {min(speeds):,.0f}–{max(speeds):,.0f} "
                f"| {entry.median('p50Ms'):.2f} | {entry.median('p99Ms'):.2f} "
                f"| {base.median('jobsPerS') / speed:.2f} × | {entry.peer.durability} |"
            )
        print()


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
