"""Makes projects of public handlers for the hosted services' Python worker, with their imports
changed and nothing else.

Usage: runpod_workers.py DIRECTORY [HANDLER.py ...]

Each project is DIRECTORY/NAME/handler.py. Without files the handlers are those of the source
distribution of `runpod` (MIT licence, Copyright (c) Runpod), which pip downloads: two of its
examples and the handler that its own `project create` writes. Their code is no part of this
repository.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "runpod==1.12.0"
WORKERS = {
    "simple": "examples/serverless/simple_handler.py",
    "concurrent": "examples/serverless/concurrent_handler.py",
    "starter": "runpod/cli/groups/project/starter_templates/default/src/handler.py",
}


def ported(source):
    """The source with its imports of `runpod` changed."""
    source = re.sub(
        r"^(\s*)import runpod$", r"\1import gristmill.runpod as runpod", source, flags=re.M
    )
    return re.sub(r"^(\s*)from runpod\b", r"\1from gristmill.runpod", source, flags=re.M)


def published():
    """The sources of WORKERS."""
    with tempfile.TemporaryDirectory() as directory:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            "runpod",
        ]
        subprocess.run([*command, "--dest", directory, PACKAGE], check=True)
        [archive] = Path(directory).glob("*.tar.gz")
        with tarfile.open(archive) as files:
            root = archive.name.removesuffix(".tar.gz")
            for name, path in WORKERS.items():
                yield name, files.extractfile(f"{root}/{path}").read().decode()


def main():
    target, *files = sys.argv[1:]
    workers = [(Path(file).stem, Path(file).read_text()) for file in files] or published()
    for name, source in workers:
        project = Path(target, name)
        project.mkdir(parents=True, exist_ok=True)
        (project / "handler.py").write_text(ported(source))


if __name__ == "__main__":
    main()
