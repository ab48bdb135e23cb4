"""The time from the end of an active host until the jobs that waited on it run on another host.

Usage: takeover.py GRISTMILL PLAYGROUND_WASM [KILLS]

Two hosts share a PostgreSQL database. Each round submits jobs, some of which wait, ends the active host by SIGKILL, reads
from the other host when each of the waiting jobs began to run, and starts the killed host again as the standby. All
processes are on this machine, so that the clocks agree. A round takes some 5 s; needs Python 3.9 and PostgreSQL.
"""

import datetime
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from postgresql import Server  # noqa: E402  the folder comes first

SANDBOXES = 8
JOBS = 24
JOB = {"op": "sleep", "ms": 300}
PATIENCE_S = 60


class Host:
    """A host of the database, in a directory of its own that it keeps when it is started again."""

    def __init__(self, program, environment, directory):
        serve = [program, "serve", "--listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0", "--json"]
        serve += ["--max-running-jobs", str(SANDBOXES), "--data-dir", str(directory)]
        log = open(f"{directory}.log", "a", encoding="utf-8")
        self.process = subprocess.Popen(serve, env=environment, stdout=subprocess.PIPE, stderr=log)
        self.address = json.loads(self.process.stdout.readline())["ready"]["addr"]

    def call(self, key, method, path, body=None):
        """The answer, or `None` while the host has no answer."""
        connection = http.client.HTTPConnection(self.address, timeout=10)
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status == 503:
            return None
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    def kill(self):
        self.process.kill()
        self.process.wait()


def until(what, look):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise RuntimeError(f"not within {PATIENCE_S} s: {what}")


def round_of(active, standby, key):
    """Milliseconds from the kill of the active host until each job that waited began."""
    jobs = [active.call(key, "POST", "/v2/play/run", {"input": JOB})["id"] for _ in range(JOBS)]
    states = {job: active.call(key, "GET", f"/v2/play/status/{job}")["status"] for job in jobs}
    killed = time.time()
    active.kill()
    waits = []
    for job in (job for job, status in states.items() if status == "IN_QUEUE"):

        def started():
            timeline = standby.call(key, "GET", f"/v2/play/timeline/{job}") or {"events": []}
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
    server, hosts = Server(directory), []
    try:
        url = server.create("takeover")
        secrets = str(directory / "secrets.key")
        environment = {**os.environ, "GRISTMILL_DATABASE": url, "GRISTMILL_SECRETS_KEY": secrets}
        hosts = [Host(program, environment, directory / "0")]
        key = (directory / "0" / "admin.key").read_text(encoding="utf-8").strip()
        hosts.append(Host(program, environment, directory / "1"))
        called = {**environment, "GRISTMILL_URL": f"http://{hosts[0].address}", "GRISTMILL_API_KEY": key}
        deploy = [program, "deploy", component, "--name", "play", "--workers-max", str(SANDBOXES)]
        subprocess.run(deploy, env=called, check=True, capture_output=True)
        waits = []
        for number in range(kills):
            active, standby = hosts
            until("two hosts", lambda: len(active.call(key, "GET", "/v1/cluster")["hosts"]) == 2)
            found = round_of(active, standby, key)
            waits += found
            print(f"kill {number + 1}: {len(found)} jobs waited, the last for {max(found):.0f} ms", flush=True)
            idle = {"inQueue": 0, "inProgress": 0}
            until("all jobs end", lambda: idle.items() <= (standby.call(key, "GET", "/v2/play/health") or {"jobs": {}})["jobs"].items())
            hosts = [standby, Host(program, environment, directory / str(number % 2))]
        waits.sort()
        middle, late = waits[len(waits) // 2], waits[int(0.99 * (len(waits) - 1))]
        print(f"{kills} kills, {len(waits)} jobs: median {middle:.0f} ms, p99 {late:.0f} ms, slowest {waits[-1]:.0f} ms")
    finally:
        for host in hosts:
            host.kill()
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
