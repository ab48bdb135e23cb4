"""Finds the files that a component needs beside the modules that its handler imports at once: those
that are imported or opened later. Only the build uses this module.

* Of the project: the modules that the handler's module names in an ``import`` statement anywhere,
  and those that they name in turn; and all files of their packages.
* Of packages: those that ``requirements.txt`` names, those that an ``import`` statement of the
  project names, ``tzdata``, and all that these require.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator
from hashlib import sha256
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

FILE_BYTES_MAX = 32 << 20
"""A larger data file is left out, with a note."""

_OF_THE_BUILD = {"componentize-py", "gristmill", "pip", "setuptools", "wheel"}
_MACHINE_CODE = (".so", ".pyd", ".dylib", ".dll", ".a")
_IN_DIST_INFO = {"METADATA", "entry_points.txt", "top_level.txt", "RECORD"}


class Group(NamedTuple):
    """The files of a package."""

    name: str
    root: Path
    paths: list[str]
    key: str
    """The name and a digest that changes with the files."""


def canonical(name: str) -> str:
    """The name of a package as all its spellings have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


class _Requirement(NamedTuple):
    name: str
    extras: frozenset[str]
    of_extra: str | None
    """The extra of the requiring package that this requirement belongs to."""


def _requirement(text: str) -> _Requirement | None:
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?", text)
    if not match or re.match(r"[a-z+]+://|[./~]", text.strip()):
        return None
    of_extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", text)
    extras = (part.strip() for part in (match[2] or "").split(","))
    return _Requirement(
        canonical(match[1]),
        frozenset(canonical(extra) for extra in extras if extra),
        canonical(of_extra[1]) if of_extra else None,
    )


def _in_requirements(file: Path) -> Iterator[_Requirement]:
    if not file.is_file():
        return
    # Editors on Windows begin a file with a byte order mark.
    for line in file.read_text(encoding="utf-8-sig", errors="replace").splitlines():
        line = line.split(" #")[0].strip()
        if included := re.match(r"(?:-r|--requirement)[\s=]*(\S+)", line):
            yield from _in_requirements(file.parent / included[1])
        elif line and not line.startswith(("#", "-")) and (found := _requirement(line)):
            yield found


def imports(source: str | bytes, package: str) -> Iterator[tuple[str, int]]:
    """The modules that a source names in its ``import`` statements, and the lines of these;
    ``package`` is the one of the source's own module. Bytes may begin with a byte order mark, or
    declare their encoding."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if node.level else []
            parts = parts[: len(parts) - node.level + 1] if node.level > 1 else parts
            base = ".".join([*filter(None, parts), *([node.module] if node.module else [])])
            if base:
                yield base, node.lineno
            for alias in node.names:
                yield f"{base}.{alias.name}" if base else alias.name, node.lineno


def of_project(project: Path, module: str) -> tuple[list[str], set[str]]:
    """The files of the project to carry, and the modules of others that it names."""
    found: set[Path] = set()
    named: set[str] = set()
    todo = [module]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        base = project.joinpath(*name.split("."))
        file = next(
            (f for f in (base / "__init__.py", base.with_suffix(".py")) if f.is_file()), None
        )
        if file is None:
            named.add(name.split(".")[0])
            continue
        is_package = file.name == "__init__.py"
        found.update(_all_below(base) if is_package else [file])
        own = name if is_package else name.rpartition(".")[0]
        todo += [imported for imported, _ in imports(file.read_bytes(), own)]
        parents = name.split(".")[:-1]
        todo += [".".join(parents[: n + 1]) for n in range(len(parents))]
    return sorted(str(path.relative_to(project)) for path in found), named


def _all_below(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        parts = path.relative_to(directory).parts
        if path.is_file() and not any(p.startswith(".") or p == "__pycache__" for p in parts):
            if path.suffix not in (".pyc", *_MACHINE_CODE):
                yield path


def of_packages(site: Path, project: Path, named: Iterable[str]) -> tuple[list[Group], list[str]]:
    """The files of the packages in ``site`` to carry, and notes for the author."""
    installed: dict[str, Distribution] = {}
    by_module: dict[str, set[str]] = {}
    for distribution in distributions(path=[str(site)]):
        name = canonical(distribution.metadata["Name"] or "")
        installed.setdefault(name, distribution)
        for file in distribution.files or []:
            top = file.parts[0].removesuffix(".py")
            by_module.setdefault(top, set()).add(name)
    todo = [*_in_requirements(project / "requirements.txt")]
    roots = {owner for module in named for owner in by_module.get(module, ())} | {"tzdata"}
    todo += [_Requirement(name, frozenset(), None) for name in roots]
    wanted: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        requirement = todo.pop()
        key = requirement.name, requirement.extras
        found = installed.get(requirement.name)
        if found is None or requirement.name in _OF_THE_BUILD or key in seen:
            continue
        seen.add(key)
        wanted.add(requirement.name)
        for text in found.requires or []:
            needed = _requirement(text)
            if needed and (needed.of_extra is None or needed.of_extra in requirement.extras):
                todo.append(needed)
    groups, notes = [], []
    for name in sorted(wanted):
        distribution = installed[name]
        paths = []
        for file in distribution.files or []:
            path = str(file)
            full = site / path
            in_dist_info = file.parts[0].endswith((".dist-info", ".egg-info"))
            if (
                path.startswith("..")
                or path.endswith((".pyc", *_MACHINE_CODE))
                or (in_dist_info and file.name not in _IN_DIST_INFO)
                or not full.is_file()
            ):
                continue
            if full.stat().st_size > FILE_BYTES_MAX:
                notes.append(f"{path} is left out: it has more than {FILE_BYTES_MAX >> 20} MiB")
                continue
            paths.append(path)
        record = distribution.read_text("RECORD") or ""
        digest = sha256(f"{name} {distribution.version}\n{record}".encode()).hexdigest()
        groups.append(Group(name, site, paths, f"{name}-{digest[:16]}"))
    return groups, notes


def requirements(project: Path) -> list[str]:
    """The packages that the project's ``requirements.txt`` names."""
    return [requirement.name for requirement in _in_requirements(project / "requirements.txt")]


def machine_code(site: Path, packages: Container[str] | None = None) -> dict[str, str]:
    """The extension modules in ``site``, each with the name of its package; only those of
    ``packages``, if they are given."""
    found = {}
    for distribution in distributions(path=[str(site)]):
        name = canonical(distribution.metadata["Name"] or "")
        if name in _OF_THE_BUILD or (packages is not None and name not in packages):
            continue
        for file in distribution.files or []:
            if file.suffix in (".so", ".pyd") and not str(file).startswith(".."):
                found[".".join([*file.parts[:-1], file.name.partition(".")[0]])] = name
    return found
