"""Makes a WebAssembly component of a project: ``python -m gristmill.build [PROJECT] [-o FILE]``.

The project is a directory with the handler's module, ``handler.py`` unless ``--module`` says
otherwise. Run it with the Python that has the project's dependencies, such as that of its virtual
environment: the packages in its ``site-packages`` become part of the component, if they are pure
Python.

The build runs the handler's module twice, in an empty directory. The first run, in this Python,
finds mistakes quickly (see ``_first_run.py``), finds out what the component exports, and writes the
schema of the annotated input, which becomes a part of the component. The second
run is in the sandbox's Python 3.14, and a snapshot of it becomes the component. The component also
carries the modules that may be imported later, and the data files of packages: see ``_packages.py``.
Compiled modules are kept below ``~/.cache/gristmill/python``, while builds use them; it may be deleted
at any time.

A build takes some 10 seconds and 450 MB of memory; the first one takes 10 seconds more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import _packages, _schema
from ._first_run import WORLDS

UNUSED_DAYS = 30
"""How long the cache keeps compiled modules that no build uses."""

_PACKAGE = Path(__file__).parent

_FIRST_RUN = "from gristmill import _first_run; _first_run.main({request!r})"

_ENTRY = """
from gristmill._component import {exports}, load

load({name!r}, {directory!r})
"""

_PACK = """
from gristmill._files import pack_groups

pack_groups({plan!r})

class Run: pass
"""

# Parts of the standard library that cannot work in a component, or that no handler needs.
_WITHOUT = [
    "__phello__",
    "ctypes",
    "curses",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tkinter",
    "turtledemo",
    "venv",
]


def wit_files() -> list[Path]:
    """The WIT files: in this package, or in their places in the repository."""
    found = []
    for name in ("handler.wit", "guest.wit"):
        places = [_PACKAGE / "wit", *(parent / "wit" for parent in _PACKAGE.parents)]
        file = next((place / name for place in places if (place / name).is_file()), None)
        if file is None:
            raise SystemExit(f"wit/{name} is missing: reinstall the package gristmill")
        found.append(file)
    return found


class _Build:
    """One build, with its directory for intermediate files."""

    def __init__(self, project: Path, module: str, temp: Path) -> None:
        self.project, self.module, self.temp = project, module, temp
        self.schema = temp / "input_schema.json"
        self.site = Path(sysconfig.get_path("purelib")).resolve()
        self.files, self.named = _packages.of_project(project, module)
        self.cache = _cache(temp)
        # `-p` mounts the directories at /0, /1 and so on, in this order.
        directories = [temp, project, _PACKAGE.parent, self.site, self.cache]
        self.mounts = [*dict.fromkeys(str(path) for path in directories)]

    def mounted(self, directory: Path) -> str:
        """The path of a directory in the sandbox of the build."""
        return f"/{self.mounts.index(str(directory))}"

    def inspect(self) -> str:
        """Runs the module in this Python. The world that the component needs."""
        paths = [self.project, _PACKAGE.parent, self.site]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        request = self.temp / "first_run.json"
        content = {
            "module": self.module,
            "project": str(self.project),
            "site": str(self.site),
            "schema": str(self.schema),
            "files": self.files,
            "requirements": _packages.requirements(self.project),
            "machine_code": _packages.machine_code(self.site),
        }
        request.write_text(json.dumps(content))
        empty = self.temp / "empty"
        empty.mkdir()
        code = subprocess.run(
            [sys.executable, "-c", _FIRST_RUN.format(request=str(request))],
            env=environment,
            stdout=sys.stderr,
            cwd=empty,
        ).returncode
        if code not in WORLDS:
            raise SystemExit(1)
        return WORLDS[code]

    def componentize(self, entry: str, world: str, output: Path) -> None:
        """Runs componentize-py, and shows its output only if it fails."""
        (self.temp / "gristmill_entry.py").write_text(entry)
        command = [part for file in wit_files() for part in ("-d", str(file))]
        command += ["-w", f"gristmill:guest/{world}", "componentize", "gristmill_entry"]
        for path in self.mounts:
            command += ["-p", path]
        code = "import componentize_py, sys; sys.exit(componentize_py.script())"
        # It adds the packages of `$VIRTUAL_ENV`, or else of some other Python in the path.
        (self.temp / "lib" / "site-packages").mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"VIRTUAL_ENV": str(self.temp)}
        environment.pop("RUST_BACKTRACE", None)
        done = subprocess.run(
            [sys.executable, "-c", code, *command, "-o", str(output)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            failure = self.temp / "gristmill_failure.json"
            if failure.is_file():
                _explain(json.loads(failure.read_text()))
            else:
                print(done.stdout, file=sys.stderr)
            raise SystemExit(1)

    def add_schema(self, output: Path) -> None:
        """Adds the schema of the input, if the handler's annotations give one."""
        if schema := json.loads(self.schema.read_text()):
            try:
                section = _schema.section(schema)
            except ValueError as error:
                raise SystemExit(str(error)) from None
            with output.open("ab") as file:
                file.write(section)

    def carry(self) -> None:
        """Compiles the modules and packs the files that the component carries, unless the cache
        has them; writes the list of them for the build's second run."""
        groups, notes = _packages.of_packages(self.site, self.project, self.named)
        for note in notes:
            print(note, file=sys.stderr)
        kind = f"{version('componentize-py')}-1"
        wanted: list[dict[str, Any]] = [
            {"root": "/python", "without": _WITHOUT, "key": f"python-{kind}"}
        ]
        for group in groups:
            root, key = self.mounted(group.root), f"{group.key}-{kind}"
            wanted.append({"root": root, "paths": group.paths, "key": key})
        for part in wanted:
            part["archive"] = f"{self.mounted(self.cache)}/{part['key']}.archive"
        lacking = [g for g in wanted if not _use(self.cache / f"{g['key']}.archive")]
        _remove_unused(self.cache)
        if lacking:
            (self.temp / "lacking.json").write_text(json.dumps(lacking))
            plan = f"{self.mounted(self.temp)}/lacking.json"
            self.componentize(_PACK.format(plan=plan), "packing", self.temp / "none.wasm")
        own = {"root": self.mounted(self.project), "paths": self.files}
        sdk = {"root": self.mounted(_PACKAGE.parent), "paths": _of_the_sdk()}
        carried = [{"root": g["root"], "archive": g["archive"]} for g in wanted]
        (self.temp / "carried.json").write_text(json.dumps([own, sdk, *carried]))
        machine_code = _packages.machine_code(self.site, {group.name for group in groups})
        (self.temp / "machine_code.json").write_text(json.dumps(machine_code))
        roots = [(self.mounted(self.project), ""), (self.mounted(self.site), "")]
        (self.temp / "roots.json").write_text(json.dumps([*roots, ("/python", "python3.14/")]))


def _use(archive: Path) -> bool:
    """Whether the archive is there; marks it as used."""
    try:
        os.utime(archive)
        return True
    except OSError:
        return False


def _remove_unused(cache: Path) -> None:
    """Removes archives that no build has used for a month, such as those of old versions."""
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for archive in cache.iterdir():
        with contextlib.suppress(OSError):
            if archive.stat().st_mtime < oldest:
                archive.unlink()


def _of_the_sdk() -> list[str]:
    return [str(path.relative_to(_PACKAGE.parent)) for path in sorted(_PACKAGE.rglob("*.py"))]


def _cache(temp: Path) -> Path:
    """The directory of compiled modules; one of this build if it cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base, "gristmill", "python")
    try:
        # Others have no access: `gristmill run` keeps machine code beside it.
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory.resolve()
    except OSError:
        directory = temp / "cache"
        directory.mkdir()
        return directory


def _explain(failure: dict[str, str]) -> None:
    """Shows why the handler's module cannot run in the sandbox."""
    print(failure["traceback"], end="", file=sys.stderr)
    if failure["hint"]:
        print(f"hint: {failure['hint']}", file=sys.stderr)


def build(project: Path, output: Path, module: str = "handler") -> None:
    """Makes ``output`` of the module ``module`` in ``project``. Raises ``SystemExit``."""
    if not project.joinpath(*module.split(".")).with_suffix(".py").is_file():
        raise SystemExit(f"{project} has no {module.replace('.', '/')}.py; --module names another")
    with tempfile.TemporaryDirectory() as directory:
        temp = Path(directory).resolve()
        this = _Build(project, module, temp)
        world = this.inspect()
        print(f"building {output.name}, which takes some 10 seconds", file=sys.stderr)
        this.carry()
        exports = "IncomingHandler" if world.startswith("server") else "Run"
        exports += ", Lifecycle" if world.endswith("with-init") else ""
        entry = _ENTRY.format(name=module, directory=this.mounted(temp), exports=exports)
        this.componentize(entry, world, output)
        this.add_schema(output)
    print(f"{output}: {output.stat().st_size / (1 << 20):.1f} MiB", file=sys.stderr)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m gristmill.build", description=__doc__.split("\n")[0]
    )
    parser.add_argument("project", type=Path, nargs="?", default=Path(), help="default: here")
    parser.add_argument("-o", "--output", type=Path, help="default: PROJECT/PROJECT.wasm")
    parser.add_argument("-m", "--module", default="handler", help="default: handler")
    arguments = parser.parse_args()
    project = arguments.project.resolve()
    output = arguments.output or project / f"{project.name}.wasm"
    build(project, output.resolve(), arguments.module)


if __name__ == "__main__":
    main()
