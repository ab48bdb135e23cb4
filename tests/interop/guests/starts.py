"""How long the first job after a start of the host takes, compared with later ones, in each language.

Usage: starts.py GRISTMILL DIRECTORY_OF_RUST_COMPONENTS. The others are those that run.sh has built,
and `gristmill build handlers/factors --preinit`.
Or: starts.py GRISTMILL NAME=FILE... for handlers that take any input; their starts take turns."""

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
from time import perf_counter

HERE = os.path.dirname(os.path.abspath(__file__))
RESTARTS = 7
LATER_JOBS = 30
TOKENS = {"prompt": "to be"}
TURNS = 21


def host(gristmill, data):
    """A host on a free port, and its address."""
    command = [gristmill, "serve", "--listen", "127.0.0.1:0", "--data-dir", data, "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return process, json.loads(process.stdout.readline())["ready"]["addr"]


def stop(process):
    process.terminate()
    process.wait(timeout=60)


class Calls:
    def __init__(self, address, key):
        self.connection = http.client.HTTPConnection(address, timeout=60)
        self.connection.connect()
        self.headers = {"authorization": "Bearer " + key, "content-type": "application/json"}

    def ms(self, job_input):
        """Milliseconds of one call of /runsync."""
        began = perf_counter()
        body = json.dumps({"input": job_input})
        self.connection.request("POST", "/v2/measured/runsync", body, self.headers)
        answer = json.load(self.connection.getresponse())
        assert answer["status"] == "COMPLETED", answer
        return (perf_counter() - began) * 1000


def deploy(gristmill, data, component, options):
    """Deploys a component to the host of a data directory, which is new."""
    process, address = host(gristmill, data)
    env = {**os.environ, "GRISTMILL_URL": "http://" + address, "GRISTMILL_API_KEY": key_of(data)}
    command = [gristmill, "deploy", component, "--name", "measured", "--workers-max", "1"]
    subprocess.run([*command, *options], env=env, check=True, capture_output=True)
    stop(process)


def key_of(data):
    with open(os.path.join(data, "admin.key")) as file:
        return file.read().strip()


def start(gristmill, data, job_input):
    """The milliseconds of the first job after a start, and those of later ones."""
    process, address = host(gristmill, data)
    calls = Calls(address, key_of(data))
    first = calls.ms(job_input)
    laters = [calls.ms(job_input) for _ in range(LATER_JOBS)]
    stop(process)
    return first, laters


def measure(gristmill, component, job_input, options):
    with tempfile.TemporaryDirectory() as data:
        deploy(gristmill, data, component, options)
        starts = [start(gristmill, data, job_input) for _ in range(RESTARTS)]
    return [first for first, _ in starts], [ms for _, laters in starts for ms in laters]


def row(name, firsts, laters):
    first, later = statistics.median(firsts), statistics.median(laters)
    top = first - later
    print(f"| {name} | {first:.1f} | {max(firsts):.1f} | {later:.2f} | {top:.1f} |", flush=True)


def compare(gristmill, components):
    """Two rows for each component: with an instance for each job, and with instances used again.
    The starts take turns, so that other load of the machine meets all of them."""
    with tempfile.TemporaryDirectory() as directory:
        found = {}
        for name, file in components:
            for kind, options in [("", []), (", reused", ["--reuse", "1000"])]:
                data = os.path.join(directory, name + kind)
                deploy(gristmill, data, file, options)
                found[name + kind] = data, [], []
        for _ in range(TURNS):
            for data, firsts, laters in found.values():
                first, later = start(gristmill, data, {"a": 1})
                firsts.append(first)
                laters.extend(later)
    for name, (_, firsts, laters) in found.items():
        row(name, firsts, laters)


def main():
    gristmill, rust, *_ = sys.argv[1:]
    print("| Handler | first job ms | at most | later jobs ms | first, on top of them |")
    print("|---|---|---|---|---|")
    if "=" in rust:
        compare(gristmill, [argument.split("=", 1) for argument in sys.argv[2:]])
        return
    built = os.path.join(HERE, "built")
    reuse = ["--reuse", "1000"]
    rows = [
        ("Rust, `token-stream`", f"{rust}/token_stream.wasm", TOKENS, []),
        ("Rust, `factors`: a table in `init`", f"{rust}/factors.wasm", {"number": 360}, []),
        ("the same, reused", f"{rust}/factors.wasm", {"number": 360}, reuse),
    ]
    preinit = os.path.join(HERE, "../../../handlers/factors/build/factors.wasm")
    if os.path.exists(preinit):
        rows.append(("the same, `--preinit`", preinit, {"number": 360}, []))
    for language, name in [
        ("JavaScript (QuickJS), `token-stream`", "javascript-token-stream"),
        ("JavaScript (StarlingMonkey)", "starlingmonkey-features"),
        ("Python, `token-stream`", "python-token-stream"),
    ]:
        job_input = {"op": "count"} if "features" in name else TOKENS
        rows.append((language, f"{built}/{name}.wasm", job_input, []))
        rows.append(("the same, reused", f"{built}/{name}.wasm", job_input, reuse))
    for name, component, job_input, options in rows:
        row(name, *measure(gristmill, component, job_input, options))


if __name__ == "__main__":
    main()
