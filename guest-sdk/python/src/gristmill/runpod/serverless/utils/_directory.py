"""The directory for files of a job."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def scratch() -> Path:
    """A directory that can be written: in a component the scratch space at ``/tmp``. Raises
    ``OSError`` when the endpoint has none."""
    if sys.platform != "wasi":
        return Path(tempfile.gettempdir())
    directory = Path("/tmp")
    if not directory.is_dir():
        raise OSError("files need scratch space: deploy the handler with --scratch-gb 1")
    return directory
