"""Jobs per second on one, two and three hosts of a PostgreSQL database, all on this machine.

Usage: growth.py GRISTMILL PLAYGROUND_WASM [ROUNDS]

Each round measures two kinds of jobs. Jobs that wait for 50 ms are bound by the sandboxes: 16 on each host. Jobs that
compute are bound by the cores: each host is pinned to a core of its own. The database and the clients are on
the same cores. A round takes about a minute; needs Python 3.9 and PostgreSQL.
"""

import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from postgresql import Server  # noqa: E402  the folder comes first

SANDBOXES = 16
CLIENTS = 4
JOBS_OF_A_HOST = 600


class Hosts:
    """Hosts of one database; the first one is active."""

    def __init__(self, program, url, directory, cores, is_pinned):
        self.processes = []
        environment = {**os.environ, "GRISTMILL_DATABASE": url, "GRISTMILL_SECRETS_KEY": str(directory / "secrets.key")}
        for core in range(cores):
            pin = ["taskset", "--cpu-list", str(core)] if is_pinned else []
            serve = [program, "serve", "--listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0", "--json"]
            serve += ["--max-running-jobs", str(SANDBOXES), "--data-dir", str(directory / str(core))]
            log = open(directory / f"{core}.log", "w", encoding="utf-8")
            process = subprocess.Popen([*pin, *serve], env=environment, stdout=subprocess.PIPE, stderr=log)
            self.processes.append(process)
            address = json.loads(process.stdout.readline())["ready"]["addr"]
            if core == 0:
                self.address = address
        self.key = (directory / "0" / "admin.key").read_text(encoding="utf-8").strip()
        while len(self.call("GET", "/v1/cluster")["hosts"]) < cores:
            time.sleep(0.1)

    def call(self, method, path, body=None, connection=None):
        connection = connection or http.client.HTTPConnection(self.address, timeout=60)
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    def deploy(self, program, component):
        environment = {**os.environ, "GRISTMILL_URL": f"http://{self.address}", "GRISTMILL_API_KEY": self.key}
        deploy = [program, "deploy", component, "--name", "play", "--workers-max", "1000"]
        subprocess.run(deploy, env=environment, check=True, capture_output=True)
        self.call("PATCH", "/v1/endpoints/play", {"rateLimits": {"run": {"callsPer10s": 1_000_000}}})

    def completed(self):
        return self.call("GET", "/v2/play/health")["jobs"]["completed"]

    def run(self, job, count):
        """Submits jobs, waits until they have ended, and returns how many ended in a second."""
        numbers, lock, before = iter(range(count)), threading.Lock(), self.completed()

        def submit():
            connection = http.client.HTTPConnection(self.address, timeout=60)
            while True:
                with lock:
                    if next(numbers, None) is None:
                        return
                self.call("POST", "/v2/play/run", {"input": job}, connection)

        began = time.monotonic()
        clients = [threading.Thread(target=submit) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        while self.completed() - before < count:
            time.sleep(0.02)
        return count / (time.monotonic() - began)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def measure(program, component, server, directory, job, jobs, hosts, is_pinned):
    name = f"growth{time.monotonic_ns()}"
    folder = directory / name
    folder.mkdir()
    started = Hosts(program, server.create(name), folder, hosts, is_pinned)
    try:
        started.deploy(program, component)
        # Each host compiles the handler before its first job.
        started.run(job, jobs // 4)
        time.sleep(2)
        started.run(job, jobs // 4)
        return started.run(job, jobs)
    finally:
        started.stop()


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
