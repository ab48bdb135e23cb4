"""The peers: how each is installed, started on loopback, and given the same work.

`install` returns what `start` needs. `start` returns the command of one round, which prints a JSON
object. `durability` describes how the peer stores jobs and their results."""

import json
import os
import urllib.request

import install
from processes import accepts, free_port

JAVASCRIPT = install.HERE / "javascript"
PYTHON = install.HERE / "python"


class Peer:
    def __init__(self, work):
        self.work = work

    def over_http(self, url, body, expected, *more):
        """A round of the load generator."""
        return [
            self.work.load, "--url", url, "--body", json.dumps(body, separators=(",", ":")),
            "--expect", expected, *self.how_much(), *more,
        ]

    def with_client(self, *command):
        """A round of a client of the peer's own kind."""
        return [*command, "--body", json.dumps(self.work.input), *self.how_much()]

    def how_much(self):
        return [
            "--connections", self.work.in_flight, "--warm-up", self.work.warm_up,
            "--seconds", self.work.seconds,
        ]

    def start_redis(self, server, processes):
        port = free_port()
        processes.start(
            "redis",
            [
                server, "--bind", "127.0.0.1", "--port", port, "--dir", processes.directory,
                "--appendonly", "yes", "--appendfsync", "always", "--save", "",
            ],
            accepts(port),
        )
        return port


class Gristmill(Peer):
    name = "Gristmill"
    durability = "fsync of the job and of its result"

    def install(self):
        return None

    def start(self, _, processes):
        url, key = self.start_host(processes, "host")
        return self.client(url, key)

    def start_host(self, processes, name, **options):
        """Starts a host in a directory of this name, and returns its URL and where its key is."""
        data = processes.directory / name
        config = processes.directory / "bench.toml"
        # Calls are counted and compared as usual; the limit is too high to be reached.
        config.write_text(
            "\n".join(
                f"[rate-limits.{operation}]\ncalls-per-10s = 100000000\n"
                "concurrent = 100000\ncalls-per-worker = 0\n"
                for operation in (self.work.operation, "http")
            )
        )
        log = processes.start(
            name,
            [
                self.work.gristmill, "serve", "--listen", "127.0.0.1:0", "--data-dir", data,
                "--config", config, "--json",
            ],
            lambda log: '"ready"' in log,
            **options,
        )
        ready = next(line for line in log.splitlines() if '"ready"' in line)
        return f"http://{json.loads(ready)['ready']['addr']}", data / "admin.key"

    def client(self, url, key):
        install.run(
            "deploy", self.work.gristmill, "deploy", self.work.handlers / "echo.wasm",
            "--name", "echo", "--url", url, "--data-dir", key.parent,
        )
        body = {"input": self.work.input}
        key = key.read_text().strip()
        expected = {"runsync": '"COMPLETED"', "run": '"IN_QUEUE"'}[self.work.operation]
        return self.over_http(f"{url}/v2/echo/{self.work.operation}", body, expected, "--key", key)


class GristmillHttp(Gristmill):
    name = "Gristmill, HTTP endpoint"
    durability = "none: no queue, nothing is stored"

    def install(self):
        return install.wasmtime()

    def client(self, url, key):
        component = self.installed[1]
        install.run(
            "deploy", self.work.gristmill, "deploy", component, "--name", "site",
            "--workers-max", str(self.work.in_flight), "--url", url, "--data-dir", key.parent,
        )
        key = key.read_text().strip()
        body = self.work.input
        return self.over_http(f"{url}/http/site/", body, body["text"], "--key", key)

    def start(self, installed, processes):
        self.installed = installed
        return super().start(installed, processes)


class WasmtimeServe(Peer):
    name = "`wasmtime serve`"
    durability = "none: no queue, nothing is stored"

    def install(self):
        return install.wasmtime()

    def start(self, installed, processes):
        binary, component = installed
        port = free_port()
        command = [binary, "serve", "--addr", f"127.0.0.1:{port}", "-S", "cli", component]
        processes.start("wasmtime", command, accepts(port))
        return self.over_http(f"http://127.0.0.1:{port}/", self.work.input, self.work.input["text"])


class DevelopmentServer(Peer):
    name = "`runpod` development server, `/runsync`"
    durability = "none: jobs are in memory"

    def install(self):
        return install.python()

    def start(self, bin, processes):
        port = free_port()
        command = [
            bin / "python", PYTHON / "runpod_handler.py", "--rp_serve_api",
            "--rp_api_host", "127.0.0.1", "--rp_api_port", port, "--rp_log_level", "ERROR",
        ]
        processes.start("runpod", command, accepts(port), cwd=processes.directory)
        url = f"http://127.0.0.1:{port}/runsync"
        return self.over_http(url, {"input": self.work.input}, '"COMPLETED"')


class Restate(Peer):
    name = "Restate, one node"
    durability = "fsync of its log, as it comes"

    def install(self):
        return install.node()

    def start(self, modules, processes):
        ingress, admin, fabric, service = (free_port() for _ in range(4))
        # As in production, without a log line for each job.
        quiet = {**os.environ, "NODE_ENV": "production", "RESTATE_LOGGING": "WARN"}
        command = ["node", JAVASCRIPT / "restate-service.js", service]
        processes.start("service", command, accepts(service), env=quiet)
        server = next(modules.glob("@restatedev/restate-server-*/bin/restate-server"), None)
        if server is None:
            raise install.Missing("Restate has no server for this machine")
        settings = {
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_INGRESS__BIND_PORT": str(ingress),
            "RESTATE_ADMIN__BIND_PORT": str(admin),
        }
        processes.start(
            "restate",
            [
                server, "--base-dir", processes.directory / "data", "--bind-ip", "127.0.0.1",
                "--bind-port", fabric, "--advertised-host", "127.0.0.1", "--listen-mode", "tcp",
                "--no-logo",
            ],
            lambda log: accepts(admin)(log) and accepts(ingress)(log),
            cwd=processes.directory,
            env={**os.environ, **settings},
        )
        deployment = json.dumps({"uri": f"http://127.0.0.1:{service}"}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{admin}/deployments", deployment, {"Content-Type": "application/json"}
        )
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).read()
        url = f"http://127.0.0.1:{ingress}/echo/echo"
        return self.over_http(url, self.work.input, self.work.input["text"])


class BullMq(Peer):
    name = "BullMQ on Redis"
    durability = "appendonly yes, appendfsync always"

    def install(self):
        install.node()
        return install.redis()

    def start(self, server, processes):
        redis = self.start_redis(server, processes)
        worker = ["node", JAVASCRIPT / "bullmq-worker.js", redis, self.work.in_flight]
        processes.start("worker", worker, lambda log: "ready" in log)
        return self.with_client("node", JAVASCRIPT / "bullmq-client.js", "--redis", redis)


class Celery(Peer):
    name = "Celery on Redis"
    durability = "appendonly yes, appendfsync always; acks_late"

    def install(self):
        return install.python(), install.redis()

    def start(self, installed, processes):
        bin, server = installed
        redis = self.start_redis(server, processes)
        processes.start(
            "worker",
            [bin / "celery", "-A", "celery_jobs", "worker", "-l", "WARNING", "-c", os.cpu_count()],
            lambda log: log.rstrip().endswith("ready"),
            cwd=PYTHON,
            env={**os.environ, "PEER_REDIS_PORT": str(redis)},
        )
        return self.with_client(bin / "python", PYTHON / "celery_client.py", "--redis", redis)


class Rq(Peer):
    name = "RQ on Redis"
    durability = "appendonly yes, appendfsync always"

    def install(self):
        return install.python(), install.redis()

    def start(self, installed, processes):
        bin, server = installed
        redis = self.start_redis(server, processes)
        for number in range(os.cpu_count()):
            processes.start(
                f"worker-{number}",
                [bin / "rq", "worker", "--url", f"redis://127.0.0.1:{redis}"],
                lambda log: "Listening on" in log,
                cwd=PYTHON,
                env={**os.environ, "PYTHONPATH": str(PYTHON)},
            )
        return self.with_client(bin / "python", PYTHON / "rq_client.py", "--redis", redis)


ALL = [Gristmill, GristmillHttp, WasmtimeServe, DevelopmentServer, Restate, BullMq, Celery, Rq]
