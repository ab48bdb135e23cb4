"""Requests to an HTTP endpoint beside `wasmtime serve` with the same component, and beside a flood of jobs.

Usage: http_requests.py GRISTMILL ECHO_WASM [ROUNDS]

The client is wrk on the same cores, with 64 connections and bodies of 256 B. Each round takes every server in turn,
for a second each. `tuned` is a pool that keeps as much in memory as Gristmill's. Needs Python 3.9 and wrk.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import urllib.request

import install
from processes import Processes, accepts, free_port

CONNECTIONS = 64
TUNED = ["pooling-memory-keep-resident=524288", "pooling-table-keep-resident=65536",
         "pooling-async-stack-keep-resident=65536", "pooling-pagemap-scan=y"]
NO_LIMIT = {"callsPer10s": 4_000_000_000, "concurrent": 100_000}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1}


class Load:
    """Calls of one kind: their URL, their headers, their body, and the process that answers them."""

    def __init__(self, processes, name, pid, url, body, headers):
        self.pid, self.url = pid, url
        self.script = processes.directory / f"{name}.lua"
        lines = ['wrk.method = "POST"', f"wrk.body = {json.dumps(body)}"]
        lines += [f"wrk.headers[{json.dumps(key)}] = {json.dumps(value)}" for key, value in headers.items()]
        self.script.write_text("\n".join(lines))

    def start(self, connections, seconds):
        command = ["wrk", "-t2", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(self.script), self.url]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def measure(self, connections=CONNECTIONS, seconds=1):
        """Calls a second, µs of the process for each, and the 50th and 99th percentile in ms."""
        before = self.used()
        report = self.start(connections, seconds).communicate()[0]
        used = self.used() - before
        if "Non-2xx" in report:
            sys.exit(f"{self.url} has refused calls:\n{report}")
        calls = int(re.search(r"(\d+) requests in", report)[1])
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", report)[1])
        return rate, used / calls * 1e6, percentile(report, 50), percentile(report, 99)

    def used(self):
        """Seconds of processor time."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(report, which):
    number, unit = re.search(rf"\n\s+{which}%\s+([\d.]+)(us|ms|s)", report).groups()
    return float(number) * SECONDS[unit] * 1e3


def gristmill(processes, program, echo, http_echo):
    """The loads of a host: requests to an endpoint for each metering, and jobs."""
    data = processes.directory / "data"
    port = free_port()
    processes.start("gristmill", [program, "serve", "--data-dir", str(data), "--listen", f"127.0.0.1:{port}",
                                  "--log", "warn"], accepts(port))
    host = processes.running[-1]
    url, key = f"http://127.0.0.1:{port}", (data / "admin.key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def call(method, path, body):
        request = urllib.request.Request(url + path, body, headers, method=method)
        urllib.request.urlopen(request).read()

    def deploy(name, component, **endpoint):
        call("PUT", f"/v1/handlers/{name}:1", pathlib.Path(component).read_bytes())
        template = {"id": name, "name": name, "imageName": f"{name}:1", "isServerless": True}
        call("POST", "/v1/templates", json.dumps(template).encode())
        endpoint = {"id": name, "templateId": name, "workersMax": 64, **endpoint}
        call("POST", "/v1/endpoints", json.dumps(endpoint).encode())

    loads = {}
    for metering in "fuel", "epoch":
        deploy(metering, http_echo, type="LOAD_BALANCER", metering=metering, rateLimits={"http": NO_LIMIT})
        loads[metering] = Load(processes, metering, host.pid, f"{url}/http/{metering}/", "x" * 256, headers)
    deploy("jobs", echo, rateLimits={"runsync": NO_LIMIT})
    body = json.dumps({"input": {"text": "x" * 230}})
    loads["jobs"] = Load(processes, "jobs", host.pid, f"{url}/v2/jobs/runsync", body, headers)
    return loads


def serve(processes, name, command, http_echo, flags):
    port = free_port()
    command = [str(command), "serve", "-Scli", *flags, f"--addr=127.0.0.1:{port}", str(http_echo)]
    processes.start(name, command, accepts(port))
    return Load(processes, name, processes.running[-1].pid, f"http://127.0.0.1:{port}/", "x" * 256, {})


def median(samples):
    return [statistics.median(column) for column in zip(*samples)]


def main(program, echo, rounds):
    command, http_echo = install.wasmtime()
    with Processes() as processes:
        loads = gristmill(processes, program, echo, http_echo)
        jobs = loads.pop("jobs")
        loads["serve"] = serve(processes, "serve", command, http_echo, [])
        loads["tuned"] = serve(processes, "tuned", command, http_echo, [f"-O{flag}" for flag in TUNED])
        samples = {name: [] for name in loads}
        for load in loads.values():
            load.measure()
        for _ in range(rounds):
            for name, load in loads.items():
                samples[name].append(load.measure())
        print("| Server | requests/s | min–max | CPU µs | p99 ms |\n|---|---|---|---|---|")
        for name, of in samples.items():
            rate, cpu, _, p99 = median(of)
            least, most = min(sample[0] for sample in of), max(sample[0] for sample in of)
            print(f"| {name} | {rate:,.0f} | {least:,.0f}–{most:,.0f} | {cpu:.1f} | {p99:.1f} |")
        print("\n| 4 connections | alone: p50, p99 ms | beside 64 of the other kind: p50, p99 ms |\n|---|---|---|")
        for name, load, other in ("jobs", jobs, loads["fuel"]), ("requests", loads["fuel"], jobs):
            alone, beside = [], []
            for _ in range(rounds):
                alone.append(load.measure(4)[2:])
                flood = other.start(CONNECTIONS, 3)
                time.sleep(1)
                beside.append(load.measure(4)[2:])
                flood.communicate()
            cells = ["{:.2f}, {:.2f}".format(*median(of)) for of in (alone, beside)]
            print(f"| {name} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else 20)
