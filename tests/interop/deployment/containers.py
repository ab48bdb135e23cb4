"""Containers of the compose files and of the chart, as processes of this machine: with the environment, the files and
the commands that their file names, on other ports."""

import json
import os
import pathlib
import re
import socket
import subprocess
import time
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "host/packaging/compose"
# `ENV` of the image.
IMAGE = {"GRISTMILL_LISTEN": "0.0.0.0:8080", "GRISTMILL_DATA_DIR": "/data/gristmill"}
ADDRESS = re.compile(r"(\d+\.\d+\.\d+\.\d+):(\d+)")
SECONDS = 60


def services(folder):
    return yaml.safe_load((COMPOSE / folder / "compose.yaml").read_text())["services"]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def fetch(url, key=None, **options):
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=30, **options) as answer:
        return answer.read().decode()


def until(what, condition):
    """The first value of `condition` that is true; an answer other than 200 and a refused connection are none."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            if value := condition():
                return value
            error = "it is false"
        except OSError as caught:
            error = caught
        assert time.monotonic() < end, f"not within {SECONDS} s: {what}: {error}"
        time.sleep(0.1)


class Container:
    """A host. `mounts` are the files of its volumes, by the folder in the container."""

    def __init__(self, program, directory, environment, mounts):
        self.program, self.directory, self.process = program, pathlib.Path(directory), None
        self.ports = {}
        self.folders = {}
        for number, (path, files) in enumerate(mounts.items()):
            folder = self.folders[path] = self.directory / str(number)
            folder.mkdir(parents=True)
            for name, text in files.items():
                (folder / name).write_text(text)
        self.environment = {"PATH": os.environ["PATH"]}
        self.environment |= {name: self.outside(value) for name, value in (IMAGE | environment).items()}

    def outside(self, value):
        """A value of the environment, with the addresses and the paths of this machine."""
        if value.startswith("/"):
            path = next((path for path in self.folders if value.startswith(f"{path}/")), None)
            assert path, f"no volume has {value}: the root file system is read-only"
            return str(self.folders[path] / value.removeprefix(f"{path}/"))
        return ADDRESS.sub(lambda found: self.address(int(found[2])), value)

    def address(self, port):
        return f"127.0.0.1:{self.ports.setdefault(port, free_port())}"

    def url(self, path, port=8080):
        return f"http://{self.address(port)}{path}"

    def start(self):
        with open(self.directory / "log", "a") as log:
            self.process = subprocess.Popen([self.program, "serve"], env=self.environment, stdout=log, stderr=log)
        until("the host starts", lambda: self.answers("/livez"))

    def answers(self, path, port=8080):
        assert self.process.poll() is None, self.log()
        return fetch(self.url(path, port))

    def command(self, *arguments, **environment):
        """The output of a client command in the container."""
        environment = self.environment | {"GRISTMILL_URL": self.url("")} | environment
        done = subprocess.run([self.program, *arguments], env=environment, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr + self.log()
        return done.stdout

    def create_key(self):
        """As the guides and NOTES.txt say."""
        return json.loads(self.command("keys", "create", "--name", "admin", "--scope", "admin", "--json"))["key"]

    def stop(self, force=False):
        if self.process:
            self.process.kill() if force else self.process.terminate()
            self.process.wait(90)
            self.process = None

    def log(self):
        path = self.directory / "log"
        return path.read_text()[-3000:] if path.exists() else ""


def of_service(program, directory, service, secrets=None):
    """A host of a compose file, with the texts of its secrets."""
    mounts = {volume.split(":")[1]: {} for volume in service["volumes"]}
    if secrets:
        mounts["/run/secrets"] = {name: secrets[name] for name in service["secrets"]}
    return Container(program, directory, service["environment"], mounts)
