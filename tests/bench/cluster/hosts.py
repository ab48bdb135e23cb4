"""Hosts of one PostgreSQL database, all on this machine."""

import http.client
import json
import os
import subprocess


class Unavailable(RuntimeError):
    """The host answered 503: the active host has ended, and no other host is active yet."""


class Cluster:
    """A database and the directory that has a folder for each host. `start` starts the first host, which makes the key."""

    def __init__(self, program, url, directory, sandboxes):
        self.program, self.directory, self.sandboxes = program, directory, sandboxes
        self.environment = {
            **os.environ,
            "GRISTMILL_DATABASE": url,
            "GRISTMILL_SECRETS_KEY": str(directory / "secrets.key"),
        }
        self.hosts = []

    def start(self, folder, core=None):
        """Starts a host, on one core of the machine if `core` is its number."""
        host = Host(self, folder, core)
        self.hosts.append(host)
        return host

    @property
    def key(self):
        return (self.directory / "0" / "admin.key").read_text(encoding="utf-8").strip()

    def deploy(self, host, component, workers_max):
        """Creates the endpoint `play`."""
        environment = {**self.environment, "GRISTMILL_URL": f"http://{host.address}", "GRISTMILL_API_KEY": self.key}
        deploy = [self.program, "deploy", component, "--name", "play", "--workers-max", str(workers_max)]
        subprocess.run(deploy, env=environment, check=True, capture_output=True)

    def stop(self):
        for host in self.hosts:
            host.kill()


class Host:
    """A host in a folder of its own, which it keeps when it is started again."""

    def __init__(self, cluster, folder, core):
        self.cluster, directory = cluster, cluster.directory / str(folder)
        pin = [] if core is None else ["taskset", "--cpu-list", str(core)]
        serve = [cluster.program, "serve", "--listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0", "--json"]
        serve += ["--max-running-jobs", str(cluster.sandboxes), "--data-dir", str(directory)]
        with open(f"{directory}.log", "a", encoding="utf-8") as log:
            environment = cluster.environment
            self.process = subprocess.Popen([*pin, *serve], env=environment, stdout=subprocess.PIPE, stderr=log)
        self.address = json.loads(self.process.stdout.readline())["ready"]["addr"]
        self.key = cluster.key

    def connect(self):
        return http.client.HTTPConnection(self.address, timeout=60)

    def call(self, method, path, body=None, connection=None):
        """The answer. Raises `Unavailable` for a 503, and `RuntimeError` for any other error."""
        connection = connection or self.connect()
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            kind = Unavailable if answer.status == 503 else RuntimeError
            raise kind(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    def kill(self):
        self.process.kill()
        self.process.wait()
