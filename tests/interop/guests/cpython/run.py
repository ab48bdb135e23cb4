"""CPython's own tests of files, inside a Python handler on a volume.

Usage: run.py GRISTMILL_BINARY. The tests come from Debian's packages, and are never part of this
repository. `known.txt` has the tests that fail, each with its reason: a test that fails and is not in it
fails this script, and so does one that passes again.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent / "built" / "cpython"
SDK = HERE.parents[3] / "guest-sdk" / "python"

# The version of the component's Python, without its patch release.
VERSION = "3.14"

# `test.support` is in the second one.
PACKAGES = [f"libpython{VERSION}-testsuite", f"libpython{VERSION}-stdlib"]
SOURCE = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main\n"

MODULES = [
    "test.test_os",
    "test.test_pathlib.test_pathlib",
    "test.test_pathlib.test_copy",
    "test.test_pathlib.test_join",
    "test.test_pathlib.test_join_posix",
    "test.test_pathlib.test_join_windows",
    "test.test_pathlib.test_read",
    "test.test_pathlib.test_write",
    "test.test_shutil",
    "test.test_io",
    "test.test_tempfile",
    "test.test_zipfile.test_core",
    "test.test_zipfile._path.test_path",
]

# One module takes up to two minutes on a busy machine.
TIMEOUT_MS = 1_800_000


def skip(reason: str) -> None:
    print(f"skipped: {reason}")
    sys.exit(0)


def logged(*command: str | Path, **more: object) -> str:
    """Runs a command, and returns what it writes; its whole output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


def fetch(into: Path) -> None:
    """Unpacks the package `test` from Debian's packages, with an index of its own: the machine's sources
    and packages stay as they are."""
    for below in ["state/lists/partial", "cache/archives/partial"]:
        (into / "apt" / below).mkdir(parents=True, exist_ok=True)
    (into / "apt" / "sources.list").write_text(SOURCE)
    settings = {
        "Dir::Etc::SourceList": into / "apt" / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": into / "apt" / "state",
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": into / "apt" / "cache",
        "Acquire::Languages": "none",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    logged("apt-get", *options, "--quiet", "update", timeout=300)
    logged("apt-get", *options, "--quiet", "download", *PACKAGES, cwd=into, timeout=300)
    for package in into.glob("*.deb"):
        logged("dpkg-deb", "-x", package, into / "unpacked")
    unpacked = into / "unpacked" / "usr" / "lib" / f"python{VERSION}" / "test"
    shutil.copytree(unpacked, into / "lib" / "test")
    shutil.rmtree(into / "unpacked")


def tests() -> Path:
    """The directory with the package `test`."""
    if not (BUILT / "lib").exists():
        try:
            with tempfile.TemporaryDirectory(dir=BUILT.parent) as fetched:
                fetch(Path(fetched))
                BUILT.mkdir(exist_ok=True)
                shutil.move(Path(fetched) / "lib", BUILT / "lib")
        except (OSError, subprocess.TimeoutExpired) as error:
            skip(f"CPython's tests cannot be had from Debian: {error}")
    return BUILT / "lib"


def known() -> dict[str, str]:
    """Tests that fail, with the reason."""
    reasons, reason = {}, ""
    for line in (HERE / "known.txt").read_text().splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line:
            reasons[line] = reason
    return reasons


def component() -> Path:
    python = HERE.parent / ".venv" / "bin" / "python"
    if not python.exists():
        logged("python3", "-m", "venv", python.parents[1])
        logged(python, "-m", "pip", "install", "--quiet", f"{SDK}[build]")
    # Its sources may have changed since.
    logged(python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", SDK)
    built = BUILT / "cpython.wasm"
    logged(python, "-m", "gristmill.build", HERE, "-o", built)
    return built


def perform(gristmill: str, wasm: Path, volume: str, module: str) -> dict:
    job = json.dumps({"module": module})
    settings = ["--memory-mib", "1024", "--timeout-ms", str(TIMEOUT_MS)]
    # Sparse files of some gigabytes.
    settings += ["--volume", volume, "--volume-gb", "16"]
    done = subprocess.run(
        [gristmill, "run", wasm, *settings, "--input", job], capture_output=True, text=True
    )
    if done.returncode:
        return {"run": 0, "skipped": 0, "failed": {module: done.stderr.strip().splitlines()[-1]}}
    return json.loads(done.stdout)


def main(gristmill: str) -> int:
    if not shutil.which("apt-get"):
        skip("CPython's tests come from Debian's packages, and there is no apt-get")
    BUILT.parent.mkdir(exist_ok=True)
    library, expected = tests(), known()
    wasm = component()
    wrong = 0
    with tempfile.TemporaryDirectory() as volume:
        shutil.copytree(library, os.path.join(volume, "lib"))
        for module in MODULES:
            began = time.monotonic()
            result = perform(gristmill, wasm, volume, module)
            # A subtest has its parameters behind its name.
            failed = {re.sub(r" .*", "", name): why for name, why in result["failed"].items()}
            mine = {name for name in expected if name.startswith(module + ".")}
            for name in sorted(failed.keys() - mine):
                print(f"FAILED {name}: {failed[name]}")
            for name in sorted(mine - failed.keys()):
                print(f"PASSED {name}: remove it from known.txt ({expected[name]})")
            wrong += len(failed.keys() ^ mine)
            took = time.monotonic() - began
            print(
                f"{module}: {result['run']} run, {result['skipped']} skipped, {len(failed)} failed, "
                f"{len(mine)} of them known, in {took:.0f} s",
                flush=True,
            )
    print(f"{wrong} differences to known.txt" if wrong else "as known.txt says")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: run.py GRISTMILL_BINARY")
    sys.exit(main(sys.argv[1]))
