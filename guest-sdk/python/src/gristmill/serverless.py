"""The names of the hosted services' Python worker, so that a handler written for it needs only one
changed line: ``import gristmill.runpod as runpod``, or ``import gristmill as runpod`` if it uses nothing but
``runpod.serverless.start`` and ``progress_update``.

    import gristmill as runpod

    def handler(job):
        runpod.serverless.progress_update(job, "halfway")
        return {"upper": job["input"]["text"].upper()}

    if __name__ == "__main__":
        runpod.serverless.start({"handler": handler})
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ._context import context
from ._handler import for_job, register


def start(config: dict[str, Any]) -> None:
    """Makes ``config["handler"]`` the handler of this component; returns at once.

    ``return_aggregate_stream`` makes a generator's chunks its output; without it the output is an
    empty list. ``refresh_worker`` lets an instance take no second job.
    ``concurrency_modifier`` is not called: each job has a sandbox of its own, and the endpoint's
    number of workers (``--workers-max``) says how many jobs run at the same time.
    Other keys describe how a worker fetches jobs; the host does that here, and they are ignored.
    """
    handler = for_job(
        config["handler"],
        aggregate=bool(config.get("return_aggregate_stream")),
        refresh_worker=bool(config.get("refresh_worker")),
    )
    register(replace(handler, of_runpod=True))


def progress_update(job: dict[str, Any], progress: Any) -> None:
    """Replaces the value that the job's status shows while it runs."""
    context().progress(progress)
