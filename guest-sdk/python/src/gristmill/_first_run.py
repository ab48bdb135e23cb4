"""The build's first run of a handler's module: in the author's own Python, without what a component
lacks. Only the build uses this module, in a process of its own, because a handler's module may do
anything.

It finds within a second what the second run, in the sandbox, finds after ten or not at all:

* **Machine code.** Packages have no extension modules here either. A package that works without them
  is imported, and any other one is named. Imports in functions are tried after the module has run.
* **The environment.** It is empty, as in the sandbox: the module runs when the component is built,
  and the endpoint's variables exist only when a job runs. Each read of the project's own code is
  named, unless it is in a function that the module does not call.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any

from . import _handler, _packages, _report, _schema

WORLDS = {0: "handler", 3: "handler-with-init", 4: "server", 5: "server-with-init"}
"""The worlds of components, by the exit status of a run that finds what the module needs."""

_LATER = "read it in the handler, or in a function with @gristmill.init"


def main(request_file: str) -> None:
    """Runs the module that the request names, writes the schema of its input, and ends the process
    with a status of :data:`WORLDS`, or 1 after an error."""
    request = json.loads(Path(request_file).read_text())
    project, site = Path(request["project"]), Path(request["site"])
    _report.set_roots([(str(project), ""), (str(site), "")])
    _report.set_machine_code(request["machine_code"], str(site))
    _hide_extension_modules([str(site)])
    os.environ.clear()
    reads = _Reads(project, site)
    try:
        handler, _ = _handler.load(request["module"])
        is_server = isinstance(handler, _handler.Server)
        schema = _schema.of(handler.input()) if isinstance(handler, _handler.Handler) else None
        Path(request["schema"]).write_text(json.dumps(schema))
    except BaseException as error:
        sys.stdout.flush()
        for line in _refusal(error, reads, project):
            print(line, file=sys.stderr)
        sys.exit(1)
    reads.end()
    sys.stdout.flush()
    for warning in [*reads.warnings(), *_imports_of_machine_code(request, project)]:
        print(f"warning: {warning}", file=sys.stderr)
    world = ("server" if is_server else "handler") + ("-with-init" if _handler.has_init() else "")
    sys.exit(next(status for status, name in WORLDS.items() if name == world))


def _refusal(error: BaseException, reads: _Reads, project: Path) -> Iterator[str]:
    """Why the module cannot run: with its traceback, unless one sentence says all."""
    if sentence := _report.machine_code(error):
        files = [(frame.filename, frame.lineno) for frame in _report.frames_of(error)]
        place = next((at for at in reversed(files) if at[0].startswith(f"{project}/")), None)
        where = f"{_report.shown_path(place[0])}, line {place[1]}: " if place else ""
        yield f"{where}{sentence}"
        return
    yield _report.formatted(error).removesuffix("\n")
    if error is reads.missing:
        yield f"hint: {error} is not set when the component is built: {_LATER}"
    elif isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != "runpod":
        yield f"hint: {_missing_module(error.name or '', project)}"
    elif hint := _report.hint(error):
        yield f"hint: {hint}"


def _missing_module(name: str, project: Path) -> str:
    top = name.partition(".")[0]
    if (project / top).is_dir() or (project / f"{top}.py").is_file():
        return f"the project has no module {name}"
    return (
        f"the project has no {top}.py, and the Python of this build has no package with a module "
        f"{top}: name it in requirements.txt, and install that"
    )


def _hide_extension_modules(directories: list[str]) -> None:
    """Makes the importer find nothing but sources below these directories."""
    sources = FileFinder.path_hook((SourceFileLoader, SOURCE_SUFFIXES))

    def hook(path: str) -> Any:
        if any(f"{path}/".startswith(f"{directory}/") for directory in directories):
            return sources(path)
        raise ImportError

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()


def _imports_of_machine_code(request: dict[str, Any], project: Path) -> Iterator[str]:
    """A warning for each import in a function that will fail, and for each requirement that is of
    no use."""
    named, reported = set(), set()
    for file in request["files"]:
        if not file.endswith(".py"):
            continue
        own = ".".join(Path(file).with_suffix("").parts[:-1])
        source = project.joinpath(file).read_bytes()
        for name, line in _packages.imports(source, own):
            top = name.partition(".")[0]
            is_of_project = (project / top).exists() or (project / f"{top}.py").exists()
            if name in named or is_of_project or top in sys.stdlib_module_names:
                continue
            named.add(name)
            try:
                importlib.import_module(name)
            except Exception as error:
                if sentence := _report.machine_code(error):
                    reported.add(_report.package_of(error))
                    yield f"{file}, line {line}: this import will fail: {sentence}"
    unreported = set(request["machine_code"].values()) - reported
    for package in request["requirements"]:
        if package in unreported and _report.is_useless(package):
            yield f"requirements.txt: {_report.sentence_about(package)}"


class _Reads:
    """The environment variables that the project's own code reads until :meth:`end`."""

    def __init__(self, project: Path, site: Path) -> None:
        self.missing: KeyError | None = None
        """The error of the last read of a variable by subscription."""
        self._project, self._site = f"{project}/", f"{site}/"
        self._places: dict[tuple[str, int], list[str]] = {}
        self._read: Any = os._Environ.__getitem__
        self._iterate: Any = os._Environ.__iter__

        def read(variables: Any, name: Any) -> Any:
            self._note(str(name))
            try:
                return self._read(variables, name)
            except KeyError as error:
                self.missing = error
                raise

        def iterate(variables: Any) -> Any:
            self._note("the whole environment")
            return self._iterate(variables)

        self._replace(read, iterate)

    def end(self) -> None:
        """Notes no further read."""
        self._replace(self._read, self._iterate)

    def _replace(self, read: Any, iterate: Any) -> None:
        setattr(os._Environ, "__getitem__", read)
        setattr(os._Environ, "__iter__", iterate)

    def _note(self, name: str) -> None:
        """Notes a read if the project's code makes it. The default that `setdefault` writes is for
        others."""
        frame: Any = sys._getframe(2)
        while frame.f_globals.get("__name__") in ("os", "_collections_abc", "collections.abc"):
            if frame.f_code.co_name == "setdefault":
                return
            frame = frame.f_back
        file = frame.f_code.co_filename
        if file.startswith(self._project) and not file.startswith(self._site):
            names = self._places.setdefault((_report.shown_path(file), frame.f_lineno), [])
            if name not in names:
                names.append(name)

    def warnings(self) -> Iterator[str]:
        """A sentence for each line that reads."""
        for (file, line), names in self._places.items():
            yield (
                f"{file}, line {line} reads {', '.join(names)} when the component is built, where no variable is "
                f"set, and jobs get this result whatever their endpoint sets: {_LATER}"
            )
