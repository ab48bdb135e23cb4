"""Keeps a number of jobs in flight for a while and prints one JSON object, as `load --url` does:
a job counts when it was begun in the measured time, which follows the warm-up."""

import argparse
import asyncio
import json
import time


class Clock:
    def __init__(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("--redis", type=int, help="port of Redis")
        parser.add_argument("--postgres", help="URL of the database")
        parser.add_argument("--body", help="the job's input, JSON")
        parser.add_argument("--connections", type=int)
        parser.add_argument("--warm-up", type=float)
        parser.add_argument("--seconds", type=float)
        arguments = parser.parse_args()
        self.redis = arguments.redis
        self.postgres = arguments.postgres
        self.input = json.loads(arguments.body)
        self.in_flight = arguments.connections
        self.seconds = arguments.seconds
        self.warm = time.monotonic() + arguments.warm_up
        self.end = self.warm + self.seconds
        self.latencies = []

    def is_over(self):
        return time.monotonic() >= self.end

    def done(self, begun, output):
        if output != self.input:
            raise SystemExit(f"the output is not the input: {output!r}")
        if begun >= self.warm:
            self.latencies.append(time.monotonic() - begun)

    def report(self):
        self.latencies.sort()
        if not self.latencies:
            raise SystemExit("no job was begun in the measured time")

        def quantile_ms(part):
            return self.latencies[int(part * (len(self.latencies) - 1))] * 1e3

        print(json.dumps({
            "jobsPerS": len(self.latencies) / self.seconds,
            "p50Ms": quantile_ms(0.5),
            "p99Ms": quantile_ms(0.99),
        }))


async def keep_busy(clock, run):
    """Keeps the jobs in flight on one event loop; `run(input)` submits a job and waits for its output."""

    async def one():
        while not clock.is_over():
            begun = time.monotonic()
            clock.done(begun, await run(clock.input))

    await asyncio.gather(*(one() for _ in range(clock.in_flight)))
