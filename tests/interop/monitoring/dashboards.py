"""Checks the Grafana dashboards without Grafana; with its program, also that Grafana loads them.

Usage: dashboards.py, or dashboards.py GRAFANA DIRECTORY, where GRAFANA is `grafana` or `grafana-server`.
"""

import itertools
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "docs/monitoring/grafana"
DASHBOARDS = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Grafana defines these.
BUILT_IN = {"__rate_interval", "__interval", "__range"}
COLUMNS = 24
PROVISIONING = {
    "datasources/source.yaml": "apiVersion: 1\ndatasources: [{name: Prometheus, type: prometheus, url: 'http://127.0.0.1:9'}]\n",
    "dashboards/dashboards.yaml": "apiVersion: 1\nproviders: [{name: gristmill, type: file, options: {path: '%s'}}]\n" % FOLDER,
}


def variables(value):
    """The names of all variables in the texts of a value."""
    if isinstance(value, str):
        return {name or braced for name, braced in re.findall(r"\$(?:(\w+)|\{(\w+)[^}]*\})", value)}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return set().union(*map(variables, parts))


def cells(panel):
    place = panel["gridPos"]
    assert 0 <= place["x"] and place["x"] + place["w"] <= COLUMNS and place["w"] > 0 and place["h"] > 0, panel["title"]
    columns, rows = (range(place[at], place[at] + place[size]) for at, size in ("xw", "yh"))
    return set(itertools.product(columns, rows))


def check(dashboard):
    """The rules that Grafana does not enforce: it shows such a dashboard with empty or hidden panels."""
    title, panels = dashboard["title"], dashboard["panels"]
    assert dashboard["schemaVersion"] >= 36, f"{title}: an older schema names data sources by texts"
    ids = [panel["id"] for panel in panels]
    assert len(ids) > 10 and len(set(ids)) == len(ids), f"{title}: the panels' ids are {ids}"
    taken = set()
    for panel in panels:
        place = cells(panel)
        assert not taken & place, f"{title}: {panel['title']} overlaps another panel"
        taken |= place
    listed = dashboard["templating"]["list"]
    names = [variable["name"] for variable in listed]
    assert names[0] == "datasource" and listed[0]["type"] == "datasource" and listed[0]["query"] == "prometheus", title
    assert all(variable["datasource"] == SOURCE for variable in listed[1:]), f"{title}: a variable has another data source"
    for at, variable in enumerate(listed):
        later = variables(variable) - set(names[:at])
        assert not later, f"{title}: ${variable['name']} needs {later}, which come after it or not at all"
    used = variables(panels)
    assert used <= set(names) | BUILT_IN, f"{title}: no such variables: {used - set(names) - BUILT_IN}"
    assert set(names) <= used, f"{title}: no panel uses {set(names) - used}"
    for panel in panels:
        if panel["type"] != "row":
            check_queries(f"{title}: {panel['title']}", panel, set(names) - {"datasource"})


def check_queries(where, panel, needed):
    assert panel["datasource"] == SOURCE and panel["targets"], where
    letters = [target["refId"] for target in panel["targets"]]
    assert len(set(letters)) == len(letters), f"{where}: {letters}"
    for target in panel["targets"]:
        assert target["datasource"] == SOURCE, where
        assert needed <= variables(target["expr"]), f"{where}: its query is not about all of {needed}"


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def load(program, directory):
    """Starts Grafana with the dashboards, and reads them back by its API."""
    directory = pathlib.Path(directory) / "grafana"
    for name, text in PROVISIONING.items():
        path = directory / "provisioning" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "PATHS_PROVISIONING": directory / "provisioning",
        "PATHS_DATA": directory / "data",
        "PATHS_LOGS": directory / "logs",
        "SERVER_HTTP_ADDR": "127.0.0.1",
        "SERVER_HTTP_PORT": port,
        "AUTH_ANONYMOUS_ENABLED": "true",
        "AUTH_ANONYMOUS_ORG_ROLE": "Admin",
        "ANALYTICS_REPORTING_ENABLED": "false",
        "ANALYTICS_CHECK_FOR_UPDATES": "false",
        "PLUGINS_PREINSTALL_DISABLED": "true",
    }
    environment = os.environ | {f"GF_{name}": str(value) for name, value in settings.items()}
    command = [program] + (["server"] if pathlib.Path(program).name == "grafana" else [])
    # Debian's and Red Hat's packages have the files of Grafana here.
    home = pathlib.Path("/usr/share/grafana")
    command += ["--homepath", str(home)] if home.is_dir() else []
    with open(directory / "log", "w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        for dashboard in DASHBOARDS:
            check_loaded(dashboard, until_loaded(f"http://127.0.0.1:{port}/api/dashboards/uid/{dashboard['uid']}", server))
    except BaseException:
        print((directory / "log").read_text()[-3000:])
        raise
    finally:
        server.terminate()
        server.wait(30)


def until_loaded(url, server):
    end = time.monotonic() + 120
    while True:
        try:
            return fetch(url)
        except (urllib.error.URLError, ConnectionError) as error:
            assert server.poll() is None and time.monotonic() < end, f"{url}: {error}"
            time.sleep(0.5)


def parts_of(dashboard):
    panels = [(panel["id"], panel["title"], panel["type"]) for panel in dashboard["panels"]]
    return panels, [(variable["name"], variable["type"]) for variable in dashboard["templating"]["list"]]


def check_loaded(expected, answer):
    title, loaded = expected["title"], answer["dashboard"]
    assert answer["meta"]["provisioned"] and loaded["title"] == title, answer["meta"]
    assert parts_of(loaded) == parts_of(expected), f"{title}: Grafana has {parts_of(loaded)}"


assert len(DASHBOARDS) == 2
for one in DASHBOARDS:
    check(one)
print("ok: ids, places, variables and data sources of the dashboards")
if sys.argv[1:]:
    load(*sys.argv[1:])
    print("ok: Grafana has both dashboards with all panels and variables")
