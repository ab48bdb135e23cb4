"""Two hosts on one database: those of compose/two-hosts behind a real HAProxy, or two pods of the chart.

Usage: two_hosts.py GRISTMILL_BINARY DIRECTORY compose|chart, with the URL of an empty database in DATABASE. The
directory does not exist.
"""

import json
import os
import pathlib
import secrets
import subprocess
import sys

from chart import DATABASE, SECRETS_KEY, pod_of, rendered
from containers import COMPOSE, Container, fetch, free_port, of_service, services, until

KEY = secrets.token_hex(32) + "\n"


def of_compose(program, directory):
    described = services("two-hosts")
    hosts = {}
    for name in ("one", "two"):
        service = described[name]
        url, user = service["environment"]["GRISTMILL_DATABASE"], described["postgres"]["environment"]["POSTGRES_USER"]
        assert url.startswith(f"postgres://{user}:${{DATABASE_PASSWORD") and url.endswith(f"@postgres/{user}"), url
        # On this machine all hosts have one address.
        own = service["networks"]["default"]["ipv4_address"]
        assert service["environment"]["GRISTMILL_CLUSTER_ADVERTISE"].split(":")[0] == own, f"{name} announces another address"
        service["environment"]["GRISTMILL_DATABASE"] = os.environ["DATABASE"]
        hosts[name] = of_service(program, directory / name, service, {"secrets.key": KEY})
    return described, hosts


def of_chart(program, directory):
    pod = pod_of(rendered({"replicas": 2, "metrics": {"enabled": True}} | DATABASE | SECRETS_KEY))
    values = {"database": {"url": os.environ["DATABASE"]}, "key": {"secrets.key": KEY}}
    hosts = [Container(program, directory / str(number), *pod.started(values, "127.0.0.1")) for number in range(2)]
    return hosts, pod.probes()


def proxied(described, hosts):
    """The command of HAProxy, and its environment: the addresses of the hosts, and its own."""
    network = {service["networks"]["default"]["ipv4_address"]: name for name, service in described.items() if "networks" in service}
    environment = {"PATH": os.environ["PATH"], "BIND": f"127.0.0.1:{free_port()}"}
    for name, address in described["haproxy"]["environment"].items():
        ip, port = address.split(":")
        environment[name] = hosts[network[ip]].address(int(port))
    return ["haproxy", "-db", "-f", str(COMPOSE / "two-hosts/haproxy.cfg")], environment


def ready(hosts):
    """The hosts that answer /readyz with 200."""
    found = []
    for host in hosts:
        try:
            host.answers("/readyz")
            found.append(host)
        except OSError:
            pass
    return found


def check(hosts, url, probes):
    """One host is active, and the other one becomes active when it is killed. `url` is that of a proxy, or None; both hosts
    answer the paths `probes`."""
    for host in hosts:
        host.start()
    active = until("one host is active", lambda: ready(hosts))
    assert len(active) == 1, "two hosts are active"
    active, standby = active[0], next(host for host in hosts if host is not active[0])
    key = active.create_key()

    def roles(url):
        return sorted(host["role"] for host in json.loads(fetch(f"{url}/v1/cluster", key))["hosts"])

    until("both hosts are in the cluster", lambda: roles(standby.url("")) == ["active", "standby"])
    print("ok: a host that stands by forwards calls, to the address that the other one announces")
    for host in hosts:
        assert f"gristmill_active {int(host is active)}" in host.answers("/metrics", 9090), "the metrics lack gristmill_active"
        for path in probes:
            host.answers(path)
    print("ok: both hosts answer their probes, and have metrics of their own")
    active.stop(force=True)
    until("calls reach the other host", lambda: "active" in roles(url or standby.url("")))
    print("ok: the other host becomes active")
    active.start()
    until("it stands by", lambda: roles(url or active.url("")) == ["active", "standby"])
    print("ok: the host that ended stands by after its next start")


def run(hosts, url=None, probes=()):
    try:
        check(hosts, url, probes)
    except BaseException:
        print("\n".join(host.log() for host in hosts))
        raise
    finally:
        for host in hosts:
            host.stop(force=True)


def main(program, directory, form):
    directory = pathlib.Path(directory)
    if form == "chart":
        hosts, probes = of_chart(program, directory)
        return run(hosts, probes=probes)
    described, hosts = of_compose(program, directory)
    command, environment = proxied(described, hosts)
    with open(directory / "haproxy.log", "w") as log:
        haproxy = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        run(list(hosts.values()), f"http://{environment['BIND']}")
    finally:
        haproxy.terminate()
        haproxy.wait(30)


main(*sys.argv[1:])
