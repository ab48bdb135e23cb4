"""A PostgreSQL server for a benchmark, with its default settings: `fsync` and `synchronous_commit` are on."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path


class Server:
    """A PostgreSQL server in a directory of its own."""

    def __init__(self, directory):
        self.programs = sorted(Path("/usr/lib/postgresql").iterdir(), key=lambda path: int(path.name))[-1] / "bin"
        self.socket = directory / "server"
        self.socket.mkdir()
        as_user = []
        if os.getuid() == 0:
            directory.chmod(0o711)
            shutil.chown(self.socket, "postgres")
            as_user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"]
        data = self.socket / "data"
        initdb = [self.programs / "initdb", "-D", data, "-A", "trust", "-U", "mill", "-N"]
        subprocess.run([*as_user, *initdb], check=True, stdout=subprocess.DEVNULL)
        serve = [self.programs / "postgres", "-D", data, "-k", self.socket, "-c", "listen_addresses="]
        # Only the script receives Ctrl-C; it then stops the server.
        self.process = subprocess.Popen([*as_user, *serve], stderr=subprocess.DEVNULL, start_new_session=True)
        while subprocess.run([self.programs / "pg_isready", "-h", self.socket], stdout=subprocess.DEVNULL).returncode:
            if self.process.poll() is not None:
                raise RuntimeError(f"PostgreSQL ended with code {self.process.returncode} at its start")
            time.sleep(0.1)

    def create(self, database):
        subprocess.run([self.programs / "createdb", "-h", self.socket, "-U", "mill", database], check=True)
        return f"postgresql:///{database}?user=mill&host={self.socket}"

    def stop(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()
