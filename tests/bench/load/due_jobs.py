"""Memory of delayed jobs, and how late they start when many become due in one second.

`due_jobs.py GRISTMILL ECHO_COMPONENT [JOBS]` (100,000 jobs by default; about two minutes).

The jobs' times are spread evenly over one second. A job's `delayTime` counts from its time, so it is
the lateness of its start. The jobs start no faster than the host runs jobs at all; the line about
the same jobs without times says how fast that is.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path

from kept_jobs import Host

CLIENTS = 4


def submit(host: Host, endpoint: str, jobs: int, begin: float | None) -> float:
    """Seconds until all jobs were accepted; with `begin`, their times lie in the second after it."""

    def some(first: int) -> None:
        headers = {"Authorization": f"Bearer {host.key}", "Content-Type": "application/json"}
        connection = HTTPConnection(host.address, timeout=60)
        for n in range(first, jobs, CLIENTS):
            body = {"input": {"n": n}}
            if begin:
                at = datetime.fromtimestamp(begin + n / jobs, UTC)
                body["policy"] = {"runAt": at.isoformat(timespec="milliseconds")}
            connection.request("POST", f"/v2/{endpoint}/run", json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text

    begun = time.perf_counter()
    threads = [threading.Thread(target=some, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def wait_until_done(host: Host, endpoint: str, jobs: int) -> None:
    """Returns when all jobs are completed."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        _, health = host.call("GET", f"/v2/{endpoint}/health")
        if health["jobs"]["completed"] >= jobs:
            return
        time.sleep(0.2)
    raise SystemExit(f"not all jobs of `{endpoint}` are done: {health}")


def delays(host: Host, endpoint: str) -> list[int]:
    """The `delayTime` of each job, in milliseconds, the smallest first."""
    found, cursor = [], ""
    while True:
        _, page = host.call("GET", f"/v2/{endpoint}/requests?limit=100{cursor}")
        found += [job["delayTime"] for job in page["requests"]]
        if "cursor" not in page:
            return sorted(found)
        cursor = f"&cursor={page['cursor']}"


def main() -> None:
    """Measures jobs without times, then jobs with times."""
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    program, component = sys.argv[1:3]
    jobs = int(sys.argv[3]) if len(sys.argv) == 4 else 100_000
    with tempfile.TemporaryDirectory(prefix="due-jobs-") as place:
        host = Host(program, Path(place) / "data")
        try:
            env = {**os.environ, "GRISTMILL_URL": f"http://{host.address}", "GRISTMILL_API_KEY": host.key}
            for endpoint in ("at-once", "due"):
                deploy = [program, "deploy", "--name", endpoint, component]
                subprocess.run(deploy, env=env, check=True, capture_output=True)
            took = submit(host, "at-once", jobs, None)
            wait_until_done(host, "at-once", jobs)
            print(f"{jobs:,} jobs without times: accepted and run in {took:.1f} s")

            before = host.memory_mib()
            # Twice as long as the jobs without times took.
            begin = time.time() + 5 + 2 * took
            took = submit(host, "due", jobs, begin)
            each = (host.memory_mib() - before) * 2**20 / jobs
            print(f"{jobs:,} jobs with times: accepted in {took:.1f} s, {each:.0f} B of memory each")
            wait_until_done(host, "due", jobs)
            late = delays(host, "due")
            p50, p99 = (late[len(late) * part // 100] for part in (50, 99))
            print(f"lateness of {len(late):,} jobs: median {p50} ms, p99 {p99} ms, most {late[-1]} ms")
        finally:
            host.stop()


if __name__ == "__main__":
    main()
