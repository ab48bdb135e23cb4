"""Writes the source of the manual: the pages of SUMMARY.md for mdBook, and llms.txt.

A page of the repository, such as `guest-sdk/README.md`, keeps its path in the manual; `docs/` is
the manual's root, and a README.md is an index.md. A file outside `docs/` that a page links to and
that is no page lies below `source/` with `.txt` behind its name, so that every browser shows it.
Usage: book.py DIRECTORY
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
ITEM = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def resolve(target: str, page: str) -> str:
    """The path in the repository of a link's target."""
    return os.path.normpath(os.path.join(os.path.dirname(page), target))


def place(page: str) -> str:
    """The path in the manual of a page."""
    directory, name = os.path.split(page.removeprefix("docs/"))
    return os.path.join(directory, "index.md" if name == "README.md" else name)


def listed(pattern: str) -> list[str]:
    """The files of the repository below a directory, or with a name of this form."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in shown.stdout.splitlines() if (ROOT / name).is_file()]


class Book:
    def __init__(self, target: Path) -> None:
        self.summary = (ROOT / "docs/SUMMARY.md").read_text()
        items = ITEM.findall(self.summary)
        self.titles = {resolve(path, "docs/SUMMARY.md"): title for title, path in items}
        self.target = target

    def write(self) -> None:
        if missing := set(listed("docs/*.md")) - self.titles.keys():
            sys.exit(f"docs/SUMMARY.md lacks {', '.join(sorted(missing))}")
        shutil.rmtree(self.target, ignore_errors=True)
        for name in ("book.toml", "book.css"):
            self.add(name, (ROOT / "docs" / name).read_bytes())
        for page in self.titles:
            self.add(f"src/{place(page)}", self.converted(page).encode())
        self.add("src/llms.txt", self.index().encode())

    def add(self, path: str, content: bytes) -> None:
        file = self.target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def converted(self, page: str) -> str:
        """The text of a page, with links that are right in the manual."""
        lines, in_code = [], False
        for line in (ROOT / page).read_text().split("\n"):
            is_fence = line.lstrip().startswith("```")
            in_code ^= is_fence
            if not in_code and not is_fence:
                # Links of inline code are code.
                parts = line.split("`")
                parts[::2] = [LINK.sub(lambda link: self.link(link, page), it) for it in parts[::2]]
                line = "`".join(parts)
                # mdBook reads braces at the end of a title as attributes.
                if line.startswith("#") and line.endswith("}"):
                    line = line[:-1] + "\\}"
            lines.append(line)
        return "\n".join(lines)

    def link(self, link: re.Match[str], page: str) -> str:
        target, anchor = link[1], link[2] or ""
        if not target or ":" in target:
            return link[0]
        path = resolve(target, page)
        if (ROOT / path / "README.md").is_file():
            path = os.path.join(path, "README.md")
        file = ROOT / path
        if not file.exists():
            return link[0]  # the check of the built manual names it
        if path in self.titles:
            to = place(path)
        elif path.startswith("docs/") and file.is_file():
            to = path.removeprefix("docs/")
            self.add(f"src/{to}", file.read_bytes())
        else:
            to, anchor = f"source/{path.removesuffix('.md')}.txt", ""
            # Of a directory, the names of its files.
            names = "" if file.is_file() else "\n".join(listed(path)) + "\n"
            self.add(f"src/{to}", names.encode() or file.read_bytes())
        return f"]({os.path.relpath(to, os.path.dirname(place(page)) or '.')}{anchor})"

    def index(self) -> str:
        """https://llmstxt.org: title, path and first sentence of each page."""
        text, part = f"# Gristmill\n\n> {first_sentence('README.md')}\n", ""
        for line in self.summary.split("\n"):
            if line.startswith("# "):
                part = f"\n## {line[2:]}\n\n"
            elif item := ITEM.search(line):
                page = resolve(item[2], "docs/SUMMARY.md")
                if page not in ("README.md", "docs/SUMMARY.md"):
                    text += f"{part}* [{item[1]}]({place(page)}): {first_sentence(page)}\n"
                    part = ""
        return text


def first_sentence(page: str) -> str:
    """A page has one sentence in each line."""
    lines = (ROOT / page).read_text().split("\n")
    text = next((line for line in lines[1:] if line), "")
    if not lines[0].startswith("# ") or not text[:1].isalpha():
        sys.exit(f"{page}: begin with a title and a sentence that says what the page is for")
    return ITEM.sub(r"\1", text)


if len(sys.argv) != 2:
    sys.exit("Usage: book.py DIRECTORY")
Book(Path(sys.argv[1])).write()
