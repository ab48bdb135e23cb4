"""Jobs per second on one, two and three hosts of a PostgreSQL database, all on this machine.

Usage: growth.py GRISTMILL PLAYGROUND_WASM [ROUNDS]

Each round measures two kinds of jobs. Jobs that wait for 50 ms are bound by the sandboxes: 16 on each host. Jobs that
compute are bound by the cores: each host is pinned to a core of its own. The database and the clients are on
the same cores. A round takes about a minute; needs Python 3.9 and PostgreSQL.
"""

import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from hosts import Cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from postgresql import Server  # noqa: E402  the folder comes first

SANDBOXES = 16
CLIENTS = 4
JOBS_OF_A_HOST = 600


def completed(host):
    return host.call("GET", "/v2/play/health")["jobs"]["completed"]


def run(host, job, count):
    """Submits jobs, waits until they have ended, and returns how many ended in a second."""
    numbers, lock, before = iter(range(count)), threading.Lock(), completed(host)

    def submit():
        connection = host.connect()
        while True:
            with lock:
                if next(numbers, None) is None:
                    return
            host.call("POST", "/v2/play/run", {"input": job}, connection)

    began = time.monotonic()
    clients = [threading.Thread(target=submit) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    while completed(host) - before < count:
        time.sleep(0.02)
    return count / (time.monotonic() - began)


def measure(program, component, server, directory, job, jobs, hosts, is_pinned):
    name = f"growth{time.monotonic_ns()}"
    folder = directory / name
    folder.mkdir()
    cluster = Cluster(program, server.create(name), folder, SANDBOXES)
    try:
        active = cluster.start(0, 0 if is_pinned else None)
        for core in range(1, hosts):
            cluster.start(core, core if is_pinned else None)
        while len(active.call("GET", "/v1/cluster")["hosts"]) < hosts:
            time.sleep(0.1)
        cluster.deploy(active, component, workers_max=1000)
        active.call("PATCH", "/v1/endpoints/play", {"rateLimits": {"run": {"callsPer10s": 1_000_000}}})
        # Each host compiles the handler before its first job.
        run(active, job, jobs // 4)
        time.sleep(2)
        run(active, job, jobs // 4)
        return run(active, job, jobs)
    finally:
        cluster.stop()


def main():
    program, component = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    kinds = [
        ("waits for 50 ms, 16 sandboxes on each host", {"op": "sleep", "ms": 50}, JOBS_OF_A_HOST, 3, False),
        ("computes, one core for each host", {"op": "sha256", "rounds": 60_000}, JOBS_OF_A_HOST // 2, 2, True),
    ]
    directory = Path(tempfile.mkdtemp())
    server = Server(directory)
    try:
        ratios = {}
        for number in range(1, rounds + 1):
            for label, job, jobs, hosts_max, is_pinned in kinds:
                alone = None
                for hosts in range(1, hosts_max + 1):
                    args = (job, jobs * hosts, hosts, is_pinned)
                    rate = measure(program, component, server, directory, *args)
                    alone = alone or rate
                    ratios.setdefault((label, hosts), []).append(rate / alone)
                    print(f"round {number}: {label}, {hosts} hosts: {rate:.0f} jobs/s", flush=True)
        for (label, hosts), found in ratios.items():
            print(f"{label}, {hosts} hosts: {statistics.median(found):.2f} ({min(found):.2f}-{max(found):.2f})")
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
