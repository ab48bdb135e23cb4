"""How exceptions are shown: with the paths of the project, without the SDK's own frames, and with a
hint where there is something to do."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator
from typing import Any

_ABSENT = {
    "_bz2": "bz2",
    "_ctypes": "ctypes",
    "_curses": "curses",
    "_lzma": "lzma",
    "_multiprocessing": "multiprocessing",
    "_posixsubprocess": "subprocess",
    "_tkinter": "tkinter",
    "_zstd": "compression.zstd",
    "fcntl": "fcntl",
    "grp": "grp",
    "mmap": "mmap",
    "pwd": "pwd",
    "readline": "readline",
    "resource": "resource",
    "termios": "termios",
}
"""Modules of the standard library that the Python of a component lacks, by the part that is
missing."""

_NO_SOCKETS = "HTTP, for example PostgREST in front of the database: a component has no sockets"
_ELSEWHERE = "a server with it that the handler calls over HTTP"

_INSTEAD = {
    "bcrypt": "hashlib.pbkdf2_hmac",
    "cryptography": "hashlib and hmac, or the package rsa",
    "grpcio": "HTTP with JSON",
    "lxml": "xml.etree.ElementTree, or html.parser",
    "matplotlib": "the package pygal",
    "numpy": "lists with the modules math and statistics",
    "opencv-python": _ELSEWHERE,
    "orjson": "json",
    "pandas": "the modules csv, sqlite3 and statistics",
    "pillow": "the package pypng, or a handler in Rust",
    "psycopg2": _NO_SOCKETS,
    "psycopg2-binary": _NO_SOCKETS,
    "pydantic": "pydantic<2, which is pure Python",
    "pydantic-core": "pydantic<2, which is pure Python",
    "scikit-learn": _ELSEWHERE,
    "scipy": _ELSEWHERE,
    "torch": _ELSEWHERE,
    "ujson": "json",
}
"""What handlers use instead of usual packages that do not work without their machine code."""

RUNPOD = (
    "handlers of the runpod worker run here after a change of the import: "
    "`import gristmill.runpod as runpod`"
)

_roots: list[tuple[str, str]] = []
"""The directories of the build, and what stands for each in a traceback."""

_machine_code: dict[str, str] = {}
"""The extension modules of packages, which a component lacks, and their packages."""

_site = ""


def set_roots(roots: list[tuple[str, str]]) -> None:
    """Makes tracebacks show paths below these directories with other beginnings."""
    global _roots
    _roots = sorted(roots, key=lambda root: -len(root[0]))


def set_machine_code(modules: dict[str, str], site: str) -> None:
    """Makes errors name the package of an extension module that cannot be imported. ``site`` is the
    directory of packages."""
    global _machine_code, _site
    _machine_code, _site = modules, site


def machine_code(error: BaseException) -> str:
    """The sentence about the package whose machine code an import needs, or nothing."""
    package = package_of(error)
    return sentence_about(package, _needed_by(error, package)) if package else ""


def package_of(error: BaseException) -> str:
    """The package whose machine code an import needs, or nothing."""
    if not isinstance(error, ImportError):
        return ""
    modules = (module for part in _chain(error) for module in _not_imported(part))
    return next((_machine_code[module] for module in modules if module in _machine_code), "")


def is_useless(package: str) -> bool:
    """Whether a package is known not to work without its machine code."""
    return package in _INSTEAD


def sentence_about(package: str, needed_by: str = "") -> str:
    """That a package has machine code, which other package needs it, and what to use instead."""
    instead = _INSTEAD.get(needed_by) or _INSTEAD.get(package)
    why = f" (needed by {needed_by})" if needed_by else ""
    then = f"; use {instead}" if instead else ""
    return f"{package} has machine code, which a component cannot run{why}{then}"


def _not_imported(error: BaseException) -> Iterator[str]:
    """The modules that the error of an import may be about."""
    if isinstance(error, ImportError) and error.name:
        yield error.name
        # Python 3.11 has no `name_from`.
        if name := re.match(r"cannot import name '(\w+)'", str(error)):
            yield f"{error.name}.{name[1]}"


def _needed_by(error: BaseException, package: str) -> str:
    """The package that the project has imported, if it is another one."""
    own = {module.partition(".")[0] for module, of in _machine_code.items() if of == package}
    files = [frame.filename for frame in frames_of(error)]
    of_packages = [file[len(_site) + 1 :] for file in files if file.startswith(f"{_site}/")]
    # The SDK watches imports, and so is between the project and what it has imported.
    of_packages = [file for file in of_packages if not file.startswith("gristmill/")]
    outermost = of_packages[0].partition("/")[0].removesuffix(".py") if of_packages else ""
    return "" if outermost in own else outermost


def shown_path(path: str) -> str:
    """A path as the author knows it: relative to the project, or to the directory of packages."""
    for root, shown in _roots:
        if path.startswith(root + "/"):
            return shown + path[len(root) + 1 :]
    return path


def _is_of_the_sdk(frame: Any) -> bool:
    # `exec` runs code with any globals.
    name = str(frame.f_globals.get("__name__", ""))
    if name == "__main__":
        # `python -c` of the build
        return (frame.f_code.co_filename, frame.f_code.co_name) == ("<string>", "<module>")
    if name.startswith("gristmill.runpod"):
        return False
    if name == "gristmill" or name.startswith("gristmill."):
        return True
    return name.startswith(("importlib._bootstrap", "_frozen_importlib", "gristmill_entry"))


def formatted(error: BaseException) -> str:
    """The traceback, and those of its causes."""
    for cause in _chain(error):
        # An assignment would fail for the exceptions of a frozen dataclass.
        cause.with_traceback(_own_frames(cause.__traceback__))
    if error.__traceback__ is None and not isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(error))
    report = traceback.TracebackException.from_exception(error)
    todo: list[Any] = [report]
    while todo:
        part = todo.pop()
        for frame in part.stack:
            frame.filename = shown_path(frame.filename)
        if isinstance(error, SyntaxError) and part.exc_type is SyntaxError and part.filename:
            part.filename = shown_path(part.filename)
        todo += filter(None, (part.__cause__, part.__context__, *(part.exceptions or ())))
    return "".join(report.format())


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        part = todo.pop()
        if part is not None and not any(part is other for other in found):
            found.append(part)
            todo += [part.__cause__, part.__context__]
    return found


def _own_frames(frames: Any) -> Any:
    """The frames without those of the SDK and of Python's importer."""
    kept = []
    while frames:
        if not _is_of_the_sdk(frames.tb_frame):
            kept.append(frames)
        frames = frames.tb_next
    for index, frame in enumerate(kept):
        frame.tb_next = kept[index + 1] if index + 1 < len(kept) else None
    return kept[0] if kept else None


def frames_of(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames, the innermost last."""
    return [*traceback.extract_tb(error.__traceback__)]


def hint(error: BaseException) -> str:
    """What the author can do, or nothing."""
    if isinstance(error, FileNotFoundError):
        name = str(error.filename or "/")
        if not name.startswith("/"):
            return (
                "a component has no current directory: read files beside the handler at the top of "
                "its module, by `Path(__file__).parent`"
            )
        if name.startswith("/tmp/") and not os.path.isdir("/tmp"):
            return (
                "there is no `/tmp` without scratch space: `scratch-gb` in `[limits]` of "
                "gristmill.toml, or `--scratch-gb`"
            )
    if not isinstance(error, ImportError):
        return ""
    if sentence := machine_code(error):
        return sentence
    name = error.name or ""
    if name.split(".")[0] == "runpod":
        return RUNPOD
    if name in _ABSENT:
        return f"the Python of a component has no {_ABSENT[name]}"
    if isinstance(error, ModuleNotFoundError):
        return (
            "a component has the packages that `requirements.txt` or an `import` statement names: "
            "name it there, or import it at the top"
        )
    return ""


def text_of(value: object) -> str:
    """``str(value)``, or a sentence in its place if that fails."""
    try:
        return str(value)
    except Exception as why:
        return f"its text cannot be shown, because `__str__` raises {type(why).__name__}"


def one_line(error: BaseException) -> str:
    """The exception as the error of a job."""
    if sentence := machine_code(error):
        return f"{type(error).__name__}: {sentence}"
    line = f"{type(error).__name__}: {text_of(error)}".removesuffix(": ")
    return "; ".join(filter(None, (re.sub(r"\s*\n\s*", " ", line), hint(error))))
