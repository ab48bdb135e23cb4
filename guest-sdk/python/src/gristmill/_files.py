"""The files that a component carries: modules that were not imported when it was built, and data
files of packages. Only a component uses this module.

The build compresses each file by itself, and modules as compiled code. A module is decompressed and
run when it is imported, a data file is decompressed when it is opened, and nothing else costs
memory or time. The files are found below the paths that they had during the build, by ``import``,
``open``, ``os.stat``, ``os.listdir`` and ``os.scandir``, and so by ``pathlib``,
``importlib.resources``, ``importlib.metadata`` and ``pkgutil``. They cannot be written, and real
files of the same path come first. C code, such as SQLite, does not see them.
"""

from __future__ import annotations

import _imp
import builtins
import errno
import importlib.util
import io
import json
import marshal
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

Archive = dict[str, tuple[int, bytes]]
"""A path, the size of the file, and its compressed bytes: for ``.py`` the compiled code."""

_files: Archive = {}
_children: dict[str, set[str]] = {}
"""The names in each directory."""


def pack(root: str, paths: Iterable[str]) -> Archive:
    """The files at ``paths`` below ``root``; modules that this Python cannot compile are left
    out, such as templates of Python 2."""
    archive: Archive = {}
    for path in paths:
        full = f"{root}/{path}"
        if path.endswith(".py"):
            try:
                code = SourceFileLoader("module", full).get_code("module")
            except (SyntaxError, ValueError):
                continue
            content = marshal.dumps(code)
        else:
            with open(full, "rb") as file:
                content = file.read()
        archive[path] = (len(content), zlib.compress(content, 9))
    return archive


def pack_groups(plan: str) -> None:
    """Writes the archives that a build lacks. ``plan`` is a JSON file: a list with the root, the
    paths and the file of each archive."""
    sys.dont_write_bytecode = True
    with open(plan) as file:
        groups = json.load(file)
    for group in groups:
        # Builds may run at the same time.
        partial = f"{group['archive']}.{os.urandom(8).hex()}.partial"
        paths = group.get("paths") or _below(group["root"], group["without"])
        with open(partial, "wb") as target:
            target.write(marshal.dumps(pack(group["root"], paths)))
        os.replace(partial, group["archive"])


def _below(root: str, without: list[str]) -> Iterator[str]:
    """The paths of all files below ``root``, except for some directories in it."""
    for directory, directories, names in os.walk(root):
        if directory == root:
            directories[:] = [name for name in directories if name not in without]
        directories[:] = [name for name in directories if name != "__pycache__"]
        for name in names:
            if not name.endswith((".pyc", ".a", ".so")):
                yield f"{directory}/{name}"[len(root) + 1 :]


def install(plan: str) -> None:
    """Makes the files of a build's archives available. ``plan`` is a JSON file: the archives, with
    the root of each, and files that are in none, with theirs."""
    with open(plan) as file:
        groups = json.load(file)
    imported = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
    for group in groups:
        if "archive" in group:
            try:
                with open(group["archive"], "rb") as file:
                    # Not `loads`: the bytes of the whole file would stay a hole in the snapshot.
                    archive = marshal.load(file)
            except (OSError, EOFError, ValueError, TypeError) as error:
                cache = "the cache of compiled modules, ~/.cache/gristmill/python, is damaged"
                raise RuntimeError(f"{cache} ({error}): delete it") from None
        else:
            archive = pack(group["root"], group["paths"])
        for path, entry in archive.items():
            full = f"{group['root']}/{path}"
            _add(full, (0, b"") if full in imported else entry)
    sys.meta_path.append(_Finder)
    _patch()


def _add(path: str, entry: tuple[int, bytes]) -> None:
    _files[path] = entry
    while path and path != "/":
        parent, _, name = path.rpartition("/")
        names = _children.setdefault(parent or "/", set())
        if name in names:
            break
        names.add(name)
        path = parent


def _read(path: str) -> bytes | None:
    entry = _files.get(path)
    return None if entry is None else zlib.decompress(entry[1]) if entry[1] else b""


class _Loader:
    """Runs a module of the archive."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(self.name), module.__dict__)

    def get_code(self, name: str) -> CodeType:
        content = _read(self.path)
        assert content is not None
        code = marshal.loads(content)
        assert isinstance(code, CodeType)
        fix: Any = _imp
        fix._fix_co_filename(code, self.path)
        return code

    def get_source(self, name: str) -> None:
        return None

    def get_filename(self, name: str | None = None) -> str:
        return self.path

    def is_package(self, name: str) -> bool:
        return self.path.endswith("/__init__.py")

    def get_data(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def get_resource_reader(self, name: str) -> Any:
        from importlib.readers import FileReader

        return FileReader(self)  # type: ignore[arg-type]


class _Finder:
    """Finds modules of the archive; the last of ``sys.meta_path``."""

    @classmethod
    def find_spec(
        cls, name: str, path: Iterable[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        tail = name.rpartition(".")[2]
        directories = []
        for entry in sys.path if path is None else path:
            base = f"{entry}/{tail}"
            for file in (f"{base}/__init__.py", f"{base}.py"):
                if file in _files:
                    is_package = file.endswith("/__init__.py")
                    return importlib.util.spec_from_file_location(
                        name,
                        file,
                        loader=_Loader(name, file),  # type: ignore[arg-type]
                        submodule_search_locations=[base] if is_package else None,
                    )
            if base in _children:
                directories.append(base)
        if not directories:
            return None
        spec = ModuleSpec(name, None, is_package=True)  # a namespace
        spec.submodule_search_locations = directories
        return spec

    @classmethod
    def find_distributions(cls, *arguments: Any, **more: Any) -> Iterator[Any]:
        return iter(())  # `importlib.metadata` has a finder of its own, which reads `sys.path`


class _Entry:
    """``os.DirEntry``."""

    def __init__(self, directory: str, name: str) -> None:
        self.name, self.path = name, f"{directory}/{name}"

    def __fspath__(self) -> str:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self.path in _children

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self.path in _files

    def is_symlink(self) -> bool:
        return False

    def is_junction(self) -> bool:
        return False

    def inode(self) -> int:
        return 0

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        found = _stat(self.path)
        assert found
        return found


class _Entries:
    """The iterator of ``os.scandir``."""

    def __init__(self, directory: str) -> None:
        self._entries = iter([_Entry(directory, name) for name in _children[directory]])

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def close(self) -> None:
        pass


def _key(path: Any) -> str | None:
    """The path as the archive has it, or ``None`` for a descriptor."""
    if isinstance(path, int) or path is None:
        return None
    text = os.fsdecode(path)
    return os.path.normpath(text) if text.startswith("/") else None


def _stat(path: str) -> os.stat_result | None:
    if path in _children:
        mode, size = stat.S_IFDIR | 0o555, 0
    elif path in _files:
        mode, size = stat.S_IFREG | 0o444, _files[path][0]
    else:
        return None
    return os.stat_result((mode, 0, 0, 1, 0, 0, size, 0, 0, 0))


def _patch() -> None:
    """Lets calls that found no real file look in the archive."""
    real_open, real_listdir, real_scandir = io.open, os.listdir, os.scandir
    real_stat, real_lstat = os.stat, os.lstat

    def open(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        try:
            return real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        except OSError as error:
            path = _key(file)
            if (
                path not in _files
                or error.errno == errno.EISDIR
                or not mode.startswith("r")
                or "+" in mode
            ):
                raise
        data: Any = io.BytesIO(_read(path) or b"")
        data.name = file
        if "b" in mode:
            return data
        return io.TextIOWrapper(data, encoding, errors, newline)

    def listdir(path: Any = ".") -> Any:
        try:
            return real_listdir(path)
        except OSError:
            if (key := _key(path)) not in _children:
                raise
            return [*_children[key]]

    def scandir(path: Any = ".") -> Any:
        try:
            return real_scandir(path)
        except OSError:
            if (key := _key(path)) not in _children:
                raise
            return _Entries(key)

    def stat_of(real: Any) -> Any:
        def found(path: Any, **more: Any) -> os.stat_result:
            try:
                result: os.stat_result = real(path, **more)
            except OSError:
                key = _key(path)
                virtual = _stat(key) if key else None
                if virtual is None:
                    raise
                return virtual
            return result

        return found

    open.__module__ = "_io"
    # As an attribute of a class, `open` must not become a method: it is no function in CPython.
    builtins.open = io.open = staticmethod(open)
    os.listdir, os.scandir = listdir, scandir
    os.stat, os.lstat = stat_of(real_stat), stat_of(real_lstat)
