"""The time from the end of an active host until the jobs that waited on it run on another host.

Usage: takeover.py GRISTMILL PLAYGROUND_WASM [KILLS]

Two hosts share a PostgreSQL database. Each round submits jobs, some of which wait, ends the active host by SIGKILL, reads
from the other host when each of the waiting jobs began to run, and starts the killed host again as the standby. All
processes are on this machine, so that the clocks agree. A round takes some 5 s; needs Python 3.9 and PostgreSQL.
"""

import datetime
import shutil
import sys
import tempfile
import time
from pathlib import Path

from hosts import Cluster, Unavailable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from postgresql import Server  # noqa: E402  the folder comes first

SANDBOXES = 8
JOBS = 24
JOB = {"op": "sleep", "ms": 300}
PATIENCE_S = 60


def until(what, look):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            found = look()
        except Unavailable:
            found = None
        if found:
            return found
        time.sleep(0.02)
    raise RuntimeError(f"not within {PATIENCE_S} s: {what}")


def round_of(active, standby):
    """Milliseconds from the kill of the active host until each job that waited began."""
    jobs = [active.call("POST", "/v2/play/run", {"input": JOB})["id"] for _ in range(JOBS)]
    states = {job: active.call("GET", f"/v2/play/status/{job}")["status"] for job in jobs}
    killed = time.time()
    active.kill()
    waits = []
    for job in (job for job, status in states.items() if status == "IN_QUEUE"):

        def started():
            timeline = standby.call("GET", f"/v2/play/timeline/{job}")
            times = [parse(event["at"]) for event in timeline["events"] if event["event"] == "started"]
            return [at for at in times if at >= killed]

        waits.append((until(f"{job} runs", started)[0] - killed) * 1e3)
    return waits


def parse(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def main():
    program, component = sys.argv[1:3]
    kills = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    directory = Path(tempfile.mkdtemp())
    server = Server(directory)
    cluster = Cluster(program, server.create("takeover"), directory, SANDBOXES)
    try:
        active, standby = cluster.start(0), cluster.start(1)
        cluster.deploy(active, component, workers_max=SANDBOXES)
        waits = []
        for number in range(kills):
            until("two hosts", lambda: len(active.call("GET", "/v1/cluster")["hosts"]) == 2)
            found = round_of(active, standby)
            waits += found
            print(f"kill {number + 1}: {len(found)} jobs waited, the last for {max(found):.0f} ms", flush=True)
            idle = {"inQueue": 0, "inProgress": 0}
            until("all jobs end", lambda: idle.items() <= standby.call("GET", "/v2/play/health")["jobs"].items())
            active, standby = standby, cluster.start(number % 2)
        waits.sort()
        middle, late = waits[len(waits) // 2], waits[int(0.99 * (len(waits) - 1))]
        print(f"{kills} kills, {len(waits)} jobs: median {middle:.0f} ms, p99 {late:.0f} ms, slowest {waits[-1]:.0f} ms")
    finally:
        cluster.stop()
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
