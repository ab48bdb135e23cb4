"""``runpod.serverless.utils.rp_download``: files from URLs, in the scratch space."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
import uuid
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ._directory import scratch

_PIECE = 64 << 10


def _save(url: str, directory: Path, timeout: float) -> tuple[Path, str]:
    """The file, and its name in the response or the URL. The name of the file itself is random."""
    directory.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(url, timeout=timeout) as response:
        disposition = response.headers.get("content-disposition", "")
        named = re.search(r'filename="?([^";]+)', disposition)
        name = os.path.basename(named[1].strip() if named else urlparse(url).path)
        suffix = "".join(c for c in os.path.splitext(name)[1] if c.isalnum() or c == ".")[:20]
        path = directory / f"{uuid.uuid4()}{suffix}"
        try:
            with open(path, "wb") as target:
                while piece := response.read(_PIECE):
                    target.write(piece)
        except OSError:
            path.unlink(missing_ok=True)
            raise
    return path, name


def download_files_from_urls(job_id: str, urls: str | Iterable[str | None]) -> list[str | None]:
    """Downloads files and returns their paths; ``None`` for one that failed, with a log line."""
    directory = scratch() / "jobs" / re.sub(r"[^A-Za-z0-9_-]", "_", job_id) / "downloaded_files"
    paths: list[str | None] = []
    for url in [urls] if isinstance(urls, str) else urls:
        try:
            paths.append(str(_save(url, directory, 30)[0]) if url else None)
        except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
            print(f"Failed to download {url}: {error}")
            paths.append(None)
    return paths


def file(file_url: str) -> dict[str, Any]:
    """Downloads a file, and unpacks it if it is a ZIP file. Raises ``OSError``."""
    path, name = _save(file_url, scratch() / "job_files", 30)
    kind = path.suffix.removeprefix(".")
    unpacked = None
    if kind == "zip":
        unpacked = str(path.with_suffix(""))
        with zipfile.ZipFile(path) as archive:
            archive.extractall(unpacked)
    return {
        "file_path": str(path),
        "type": kind,
        "original_name": name,
        "extracted_path": unpacked,
    }
