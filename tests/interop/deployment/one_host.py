"""The host of compose/one-host behind a real Caddy with its Caddyfile, or the chart's pod without a database.

Usage: one_host.py GRISTMILL_BINARY DIRECTORY compose|chart, where the directory does not exist.
"""

import os
import pathlib
import secrets
import ssl
import subprocess
import sys
import threading

from chart import MONITORING, SECRETS_KEY, pod_of, rendered
from containers import COMPOSE, Container, fetch, free_port, of_service, services, until

# Only in a test: ports that need no root, and an authority that this machine does not trust.
GLOBAL = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n"


def of_chart(program, directory):
    """The pod with a key of its own, and with the one that the host makes."""
    key = secrets.token_hex(32) + "\n"
    for number, values in enumerate((SECRETS_KEY | MONITORING, {})):
        pod = pod_of(rendered(values))
        host = Container(program, directory / str(number), *pod.started({"key": {"secrets.key": key}}, "127.0.0.1"))
        try:
            host.start()
            for path in pod.probes():
                until(f"{path} has the status 200", lambda: host.answers(path))
            # A restart opens what the first start has made.
            own = host.create_key()
            host.stop()
            host.start()
            assert "admin" in host.command("keys", "list", GRISTMILL_API_KEY=own)
            made = (host.folders["/data"] / "gristmill/secrets.key").exists()
            assert made != ("secretsKey" in values), f"the host has made a key: {made}"
        finally:
            host.stop(force=True)
    print("ok: the pod answers its probes, and starts again")


def of_compose(program, directory):
    described = services("one-host")
    assert (COMPOSE / "one-host/Caddyfile").read_text().count("reverse_proxy gristmill:8080 ") == 1
    host = of_service(program, directory / "host", described["gristmill"])
    port = free_port()
    caddyfile = (COMPOSE / "one-host/Caddyfile").read_text().replace("gristmill:8080", host.address(8080))
    (directory / "Caddyfile").write_text(GLOBAL + caddyfile)
    # For this name Caddy makes the certificate itself.
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "XDG_DATA_HOME": str(directory), "DOMAIN": f"localhost:{port}"}
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(directory / "Caddyfile")]
    with open(directory / "caddy.log", "w") as log:
        caddy = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        host.start()
        check(host, f"https://localhost:{port}", directory / "caddy/pki/authorities/local/root.crt")
    except BaseException:
        print((directory / "caddy.log").read_text()[-3000:])
        raise
    finally:
        host.stop()
        caddy.terminate()
        caddy.wait(30)


def check(host, url, authority):
    until("Caddy has a certificate", authority.exists)
    trusted = ssl.create_default_context(cafile=authority)
    assert until("Caddy answers", lambda: fetch(f"{url}/readyz", context=trusted)) == "ready\n"
    key = host.create_key()
    listed = host.command("keys", "list", GRISTMILL_URL=url, GRISTMILL_CA_CERT=str(authority), GRISTMILL_API_KEY=key)
    assert "admin" in listed, listed
    print("ok: calls reach the host by HTTPS, with a key that a command in the container has made")
    host.stop()
    answers = []
    call = threading.Thread(target=lambda: answers.append(fetch(f"{url}/readyz", context=trusted)))
    call.start()
    call.join(2)
    assert call.is_alive(), f"a call was answered without a host: {answers}"
    host.start()
    call.join(60)
    assert answers == ["ready\n"], answers
    print("ok: a call waits for a host that starts again")
    backup = host.directory / "backup.tar"
    host.command("backup", "--with-secrets-key", "--output", str(backup), GRISTMILL_API_KEY=key)
    files = subprocess.run(["tar", "-tf", backup], capture_output=True, text=True, check=True).stdout.split()
    assert "secrets.key" in files, files
    print("ok: a backup has the key of stored secrets")


forms = {"compose": of_compose, "chart": of_chart}
forms[sys.argv[3]](sys.argv[1], pathlib.Path(sys.argv[2]))
