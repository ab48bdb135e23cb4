"""``runpod.serverless.utils.rp_cleanup``."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from ._directory import scratch

_OF_JOBS = ["input_objects", "output_objects", "job_files", "jobs", "output.zip"]


def clean(folder_list: Iterable[str] | None = None) -> None:
    """Removes the files that the helpers of this package make, and these directories. An instance
    that runs one job needs no call: its scratch space is removed with it."""
    try:
        base = scratch()
    except OSError:
        return
    for name in [*_OF_JOBS, *(folder_list or ())]:
        path = base / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
