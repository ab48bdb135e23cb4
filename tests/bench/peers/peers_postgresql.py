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


class OneProgram(Peer):
    """A peer whose workers and whose client are one program, `script`."""

    def start(self, interpreter, processes):
        return self.with_client(interpreter, self.script, "--postgres", processes.start_postgresql())


class OnNode(OneProgram):
    def install(self):
        install.postgresql()
        install.node()
        return "node"


class OnPython(OneProgram):
    def install(self):
        install.postgresql()
        return install.python() / "python"


class GraphileWorker(OnNode):
    name = "graphile-worker"
    durability = "commit of the job; results are not kept"
    script = JAVASCRIPT / "graphile-worker.js"


class PgBoss(OnNode):
    name = "pg-boss"
    durability = "commit of the job and of its result"
    script = JAVASCRIPT / "pg-boss.js"


class Procrastinate(OnPython):
    name = "procrastinate"
    durability = "commit of the job; results are not kept"
    script = PYTHON / "procrastinate_client.py"


class Dbos(OnPython):
    name = "DBOS"
    durability = "commit of the workflow and of its result"
    script = PYTHON / "dbos_client.py"


class Pgmq(OnPython):
    name = "pgmq"
    durability = "commit of the message and of its archive; results are not kept"
    script = PYTHON / "pgmq_client.py"


ALL = [GristmillOnPostgres, TwoHosts, GraphileWorker, PgBoss, Procrastinate, Dbos, Pgmq]
