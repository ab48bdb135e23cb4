"""Compares components of one handler, such as those of two versions of an SDK, in turn.

Usage: compare.py GRISTMILL INPUT COMPONENT COMPONENT...

Each round runs jobs of each component over one connection, one after the other, in instances of their
own; the order changes from round to round. For the first component the table has its values, for the
others also the median of the differences from the first one in the same round."""

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
from time import perf_counter

from starts import host, stop

# Together fewer jobs than an endpoint takes in 10 seconds.
ROUNDS = 40
JOBS = 40


def deploy(gristmill, address, key, component, name):
    env = {**os.environ, "GRISTMILL_URL": "http://" + address, "GRISTMILL_API_KEY": key}
    command = [gristmill, "deploy", component, "--name", name, "--workers-max", "1"]
    subprocess.run(command, env=env, check=True, capture_output=True)


def jobs_ms(connection, key, name, body):
    """Milliseconds of one job, from a round of jobs."""
    headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
    began = perf_counter()
    for _ in range(JOBS):
        connection.request("POST", f"/v2/{name}/runsync", body, headers)
        answer = json.load(connection.getresponse())
        assert answer["status"] == "COMPLETED", answer
    return (perf_counter() - began) * 1000 / JOBS


def run_values(gristmill, component, job_input):
    """What `gristmill run` measures: the start, the whole run, fuel and memory."""
    command = [gristmill, "run", component, "--input", job_input, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["usage"]


def main():
    gristmill, job_input, *components = sys.argv[1:]
    body = json.dumps({"input": json.loads(job_input)})
    names = [f"measured-{index}" for index in range(len(components))]
    with tempfile.TemporaryDirectory() as data:
        process, address = host(gristmill, data)
        try:
            with open(os.path.join(data, "admin.key")) as file:
                key = file.read().strip()
            for name, component in zip(names, components):
                deploy(gristmill, address, key, component, name)
            connection = http.client.HTTPConnection(address, timeout=60)
            for name in names:
                jobs_ms(connection, key, name, body)
            times = {name: [] for name in names}
            for number in range(ROUNDS):
                for name in names if number % 2 else reversed(names):
                    times[name].append(jobs_ms(connection, key, name, body))
        finally:
            stop(process)
    starts = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name, component in zip(names, components):
            starts[name].append(run_values(gristmill, component, job_input))
    print("| Component | bytes | ms for each job | difference | start ms | fuel | peak memory MiB |")
    print("|---|---|---|---|---|---|---|")
    first = times[names[0]]
    for name, component in zip(names, components):
        medians = [a / b - 1 for a, b in zip(times[name], first)]
        runs = starts[name]
        start = statistics.median(value["instantiateUs"] for value in runs) / 1000
        memory = max(value["memoryBytesPeak"] for value in runs) / 2**20
        print(
            f"| {os.path.basename(component)} | {os.path.getsize(component):,} "
            f"| {statistics.median(times[name]):.3f} | {statistics.median(medians):+.1%} "
            f"| {start:.3f} | {runs[0]['fuel']:,} | {memory:.1f} |"
        )


if __name__ == "__main__":
    main()
