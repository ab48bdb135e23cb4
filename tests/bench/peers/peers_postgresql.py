"""The peers that keep jobs in PostgreSQL, and Gristmill with a database. Each round has a server of its own."""

import os

import install
from peers import JAVASCRIPT, PYTHON, Gristmill, Peer


class GristmillOnPostgres(Gristmill):
    name = "Gristmill on PostgreSQL"
    durability = "commit of the job and of its result"
    hosts = 1

    def install(self):
        install.postgresql()

    def start(self, _, processes):
        database = {
            "GRISTMILL_DATABASE": processes.start_postgresql(),
            "GRISTMILL_SECRETS_KEY": str(processes.directory / "secrets.key"),
            "GRISTMILL_CLUSTER_LISTEN": "127.0.0.1:0",
        }
        env = {**os.environ, **database}
        # The first host is the active one.
        (url, key), *_ = [
            self.start_host(processes, f"host-{number}", env=env) for number in range(self.hosts)
        ]
        return self.client(url, key)


class TwoHosts(GristmillOnPostgres):
    name = "two hosts of Gristmill on PostgreSQL"
    hosts = 2


class GraphileWorker(Peer):
    name = "graphile-worker"
    durability = "commit of the job; results are not kept"

    def install(self):
        install.postgresql()
        return install.node()

    def start(self, _, processes):
        url = processes.start_postgresql()
        return self.with_client("node", JAVASCRIPT / "graphile-worker.js", "--postgres", url)


class PgBoss(GraphileWorker):
    name = "pg-boss"
    durability = "commit of the job and of its result"

    def start(self, _, processes):
        url = processes.start_postgresql()
        return self.with_client("node", JAVASCRIPT / "pg-boss.js", "--postgres", url)


class Procrastinate(Peer):
    name = "procrastinate"
    durability = "commit of the job; results are not kept"

    def install(self):
        install.postgresql()
        return install.python()

    def start(self, bin, processes):
        url = processes.start_postgresql()
        return self.with_client(
            bin / "python", PYTHON / "procrastinate_client.py", "--postgres", url
        )


class Dbos(Procrastinate):
    name = "DBOS"
    durability = "commit of the workflow and of its result"

    def start(self, bin, processes):
        url = processes.start_postgresql()
        return self.with_client(bin / "python", PYTHON / "dbos_client.py", "--postgres", url)


ALL = [GristmillOnPostgres, TwoHosts, GraphileWorker, PgBoss, Procrastinate, Dbos]
