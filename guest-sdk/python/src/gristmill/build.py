"""Makes a WebAssembly component of a project: ``python -m gristmill.build [PROJECT] [-o FILE]``.

The project is a directory with the handler's module, ``handler.py`` unless ``--module`` says
otherwise. Run it with the Python that has the project's dependencies, such as that of its virtual
environment: the packages in its ``site-packages`` become part of the component, if they are pure
Python.

The build runs the handler's module twice. The first run, in this Python, finds mistakes quickly and
finds out whether the component needs the export ``lifecycle``. The second run is in the sandbox's
Python 3.14, and a snapshot of it becomes the component. A build takes some 10 seconds and 450 MB of
memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

_PACKAGE = Path(__file__).parent

# In a process of its own: a handler's module may do anything.
_INSPECT = """
import sys
from gristmill import _handler
_handler.load(sys.argv[1])
sys.exit(3 if _handler.has_init() else 0)
"""

_ENTRY = """
from gristmill._component import Lifecycle, Run, load

load({name!r})
"""


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


def build(project: Path, output: Path, module: str = "handler") -> None:
    """Makes ``output`` of the module ``module`` in ``project``. Raises ``SystemExit``."""
    if not project.joinpath(*module.split(".")).with_suffix(".py").is_file():
        raise SystemExit(f"{project} has no {module.replace('.', '/')}.py; --module names another")
    paths = [str(project), str(_PACKAGE.parent), sysconfig.get_path("purelib")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    inspected = subprocess.run(
        [sys.executable, "-c", _INSPECT, module], env=environment, stdout=sys.stderr
    ).returncode
    if inspected not in (0, 3):
        raise SystemExit(f"{module} cannot be imported")
    world = "handler-with-init" if inspected == 3 else "handler"
    with tempfile.TemporaryDirectory() as temp:
        Path(temp, "gristmill_entry.py").write_text(_ENTRY.format(name=module))
        command = [part for file in wit_files() for part in ("-d", str(file))]
        command += ["-w", f"gristmill:guest/{world}", "componentize", "gristmill_entry"]
        for path in dict.fromkeys([temp, *paths]):
            command += ["-p", path]
        componentize = "import componentize_py, sys; sys.exit(componentize_py.script())"
        built = subprocess.run(
            [sys.executable, "-c", componentize, *command, "-o", str(output)], stdout=sys.stderr
        ).returncode
    if built != 0:
        raise SystemExit("componentize-py failed")
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB", file=sys.stderr)


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
