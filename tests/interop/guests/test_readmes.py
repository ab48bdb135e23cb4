"""Executes every block of shell commands in every README.md, word for word, in a copy of the
repository.

A block runs in the directory of its README, after the blocks above it. `<!-- not run: REASON -->` on
the line before a block says why a test cannot run it. The README of a template runs in the project
that `gristmill new` writes. The README of the repository starts a host of its own; all others use the
one that `run.sh` has started. Usage, after that: test_readmes.py [PART_OF_A_PATH...]
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from side_by_side import load_tests  # noqa: F401

ROOT = Path(__file__).resolve().parents[3]
NOT_RUN_MAX = 10
SECONDS_MAX = 600
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?:sh|bash|console)\n(?P<text>.*?)^```$",
    re.M | re.S,
)


def tracked(*patterns):
    shown = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, check=True
    )
    return [name.decode() for name in shown.stdout.split(b"\0") if name]


def blocks(path):
    """The blocks of a file, each with the reason why it is not run, or None."""
    return [(block["text"], block["reason"]) for block in BLOCK.finditer((ROOT / path).read_text())]


READMES = {path: blocks(path) for path in tracked("README.md", "**/README.md")}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Readmes(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        self.clone = self.place / "gristmill"
        for name in tracked():
            if (ROOT / name).is_file():
                (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.clone / name, follow_symlinks=False)
        # What `make guests` has built.
        (self.clone / "handlers/target").symlink_to(ROOT / "handlers/target")
        programs = self.place / "bin"
        programs.mkdir()
        (programs / "gristmill").symlink_to(Path(os.environ["GRISTMILL"]).resolve())
        self.environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "UPSTREAM_KEY": "a key",
        }

    def execute(self, path):
        directory = self.clone / Path(path).parent
        port = "8080"
        if template := re.fullmatch(r"host/author/templates/(http/)?(\w+)/README\.md", path):
            # Each has an endpoint of its own.
            kind = "http" if template[1] else "job"
            name = f"my-{template[2]}-{kind}-handler"
            new = f"gristmill new {name} --kind {kind} --lang {template[2]}"
            self.run_script(new, self.place, path)
            directory = self.place / name
        elif path == "README.md":
            port = str(free_port())
            for name in ("GRISTMILL_API_KEY", "GRISTMILL_DATA_DIR"):
                self.environment.pop(name, None)
            self.environment |= {
                "GRISTMILL_URL": f"http://127.0.0.1:{port}",
                "GRISTMILL_LISTEN": f"127.0.0.1:{port}",
            }
        for text, reason in READMES[path]:
            if reason is None:
                self.run_script(text.replace("127.0.0.1:8080", f"127.0.0.1:{port}"), directory, path)

    def run_script(self, text, directory, path):
        script = self.place / "block.sh"
        script.write_text(text)
        # A file, since a host in the background keeps a pipe open.
        with tempfile.TemporaryFile("w+") as output:
            started = subprocess.Popen(
                ["sh", "-eu", str(script)],
                cwd=directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.addCleanup(end_group, started.pid)
            status = started.wait(timeout=SECONDS_MAX)
            output.seek(0)
            self.assertEqual(status, 0, f"{path}:\n{text}\n{output.read()[-4000:]}")


def end_group(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def add(path):
    name = "test_" + re.sub(r"\W+", "_", path.removesuffix("README.md") or "repository").strip("_")
    setattr(Readmes, name, lambda self: self.execute(path))


parts = sys.argv[1:]
for readme, found in READMES.items():
    if any(reason is None for _, reason in found) and (not parts or any(p in readme for p in parts)):
        add(readme)


class Marks(unittest.TestCase):
    def test_few_blocks_are_not_run(self):
        reasons = [reason for found in READMES.values() for _, reason in found if reason]
        self.assertLessEqual(len(reasons), NOT_RUN_MAX, reasons)

    def test_each_block_of_commands_is_found(self):
        for path, found in READMES.items():
            text = (ROOT / path).read_text()
            opened = re.findall(r"^\s*(?:```|~~~)\s*(?:sh|bash|shell|console|zsh)\b", text, re.M)
            self.assertEqual(len(opened), len(found), path)
            marks = text.count("<!-- not run:")
            self.assertEqual(marks, sum(reason is not None for _, reason in found), path)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
