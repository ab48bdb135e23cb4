"""The processes of a peer: this module starts each one, and stops it by its id."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from postgresql import Server  # noqa: E402  the folder comes first

START_SECONDS = 60


class Failed(Exception):
    """Why a peer gave no figures."""


class Processes:
    """The processes of one peer and its directory; the end of `with` stops and deletes them."""

    def __enter__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="peer-"))
        self.running = []
        return self

    def __exit__(self, *_):
        # A second Ctrl-C must not leave anything running.
        signals = signal.SIGINT, signal.SIGTERM
        handlers = [signal.signal(number, signal.SIG_IGN) for number in signals]
        try:
            for process in reversed(self.running):
                process.terminate()
            for process in reversed(self.running):
                stop(process)
            shutil.rmtree(self.directory, ignore_errors=True)
        finally:
            for number, handler in zip(signals, handlers):
                signal.signal(number, handler)

    def start(self, name, command, until, **options):
        """Starts a command and waits until `until(log)` is true; `log` is what it has printed."""
        log = self.directory / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                # Only this script receives Ctrl-C; it then stops the processes it started.
                start_new_session=True,
                **options,
            )
        self.running.append(process)
        deadline = time.monotonic() + START_SECONDS
        while not until(log.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace")[-2000:]
                raise Failed(f"{name} did not start:\n{tail}")
            time.sleep(0.05)
        return log.read_text(errors="replace")

    def start_postgresql(self):
        """Starts a server with one database, and returns the URL of the database."""
        server = Server(self.directory)
        self.running.append(server.process)
        return server.create("peer")


def stop(process):
    """Ends a process and its children: `start` has put them into their own process group."""
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def free_port():
    """A port of the loopback interface that is not in use."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def accepts(port):
    """A condition for `start`: something listens on the port."""

    def check(_):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return check
