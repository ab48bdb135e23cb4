"""Checks the shipped rules, dashboards and pages against a real host and a real Prometheus.

Usage: check.py GRISTMILL_URL KEY_FILE ENDPOINT DIRECTORY, where the endpoint has a handler that can fail.
Ends the Prometheus that it starts. Takes about half a minute.
"""

import json
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
RULES = ROOT / "docs/monitoring/prometheus/gristmill.rules.yml"
DASHBOARDS = sorted((ROOT / "docs/monitoring/grafana").glob("*.json"))
# This host makes no backup.
MAY_BE_EMPTY = {"Age of the last backup"}
NAME = re.compile(r"(?<![:\w])gristmill_\w+(?![:\w])")


def fetch(url, key=None, body=None):
    request = urllib.request.Request(url, body, {"authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def families(scrape):
    """The names of all metrics as the pages write them, and of all their series."""
    pages, series = set(), set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", scrape, re.M):
        pages.add(name + "_total" if kind == "counter" else name)
        series.update({"counter": [name + "_total"], "histogram": [name + end for end in ("_bucket", "_sum", "_count")]}.get(kind, [name]))
    return pages, series


def panels():
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield path.name, panel["title"], target["expr"]


def check_names(scrape):
    pages, series = families(scrape)
    expressions = [line.split("expr:", 1)[1] for line in RULES.read_text().splitlines() if "expr:" in line]
    expressions += [expression for _, _, expression in panels()]
    used = {name for text in expressions for name in NAME.findall(text)}
    assert len(used) > 20 and used <= series, f"the host has no such series: {sorted(used - series)}"
    text = (ROOT / "docs/reference/metrics.md").read_text()
    listed = set(re.findall(r"`(gristmill_\w+)`", text))
    assert listed == pages, f"metrics.md lacks {sorted(pages - listed)} and has too much: {sorted(listed - pages)}"
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    table = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/guides/monitoring.md").read_text(), re.M))
    assert alerts == table, f"the table of alerts differs: {sorted(alerts ^ table)}"
    print("ok: names of metrics and alerts")


def query(prometheus, expression):
    answer = json.loads(fetch(f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
    return answer["data"]["result"]


def until(what, condition):
    deadline = time.monotonic() + 120
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within two minutes: {what}"
        time.sleep(0.5)
    return value


def main(host, key_file, endpoint, site, directory):
    key = pathlib.Path(key_file).read_text().strip()
    check_names(fetch(f"{host}/metrics", key))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    target = host.removeprefix("http://")
    config = (ROOT / "docs/monitoring/prometheus/prometheus.yml").read_text()
    for old, new in (("/etc/prometheus/gristmill.key", key_file), ("127.0.0.1:8080", target), ("gristmill.rules.yml\n", f"{RULES}\n"), (": 15s", ": 1s")):
        assert old in config, old
        config = config.replace(old, new)
    directory = pathlib.Path(directory)
    (directory / "prometheus.yml").write_text(config)
    with open(directory / "prometheus.log", "w") as log:
        server = subprocess.Popen(["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/tsdb", f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        check_server(f"http://{address}", host, key, endpoint, site)
    except BaseException:
        print((directory / "prometheus.log").read_text()[-3000:])
        raise
    finally:
        server.terminate()
        server.wait(30)


def check_server(prometheus, host, key, endpoint, site):
    def up():
        try:
            return [sample for sample in query(prometheus, "up") if sample["value"][1] == "1"]
        except (urllib.error.URLError, ConnectionError):
            return []

    instance = until("the host is up in Prometheus", up)[0]["metric"]["instance"]
    failed = f'endpoint:gristmill_jobs_failed:ratio_rate5m{{endpoint="{endpoint}"}} > 0'
    assert not query(prometheus, failed)
    admin = pathlib.Path(sys.argv[6]).read_text().strip()

    def job_fails():
        fetch(f"{host}/v2/{endpoint}/runsync", admin, json.dumps({"input": json.loads(sys.argv[7])}).encode())
        return query(prometheus, failed)

    until("a failure raises the recorded series", job_fails)
    print("ok: a failed job raises the recorded series")

    def request_is_counted():
        fetch(f"{host}/http/{site}/", admin)
        return query(prometheus, f'rate(gristmill_requests_total{{endpoint="{site}"}}[1m]) > 0')

    until("a request is counted", request_is_counted)
    print("ok: a request of an HTTP endpoint is counted")
    values = {"$instance": instance, "$endpoint": endpoint, "$__rate_interval": "1m"}
    for file, title, expression in panels():
        # Jobs have no requests.
        if "gristmill_request" in expression:
            expression = expression.replace("$endpoint", site)
        for name, value in values.items():
            expression = expression.replace(name, value)
        if not query(prometheus, expression) and title not in MAY_BE_EMPTY:
            raise AssertionError(f"{file}: {title}: no data: {expression}")
    print("ok: each panel has data")


main(*sys.argv[1:6])
