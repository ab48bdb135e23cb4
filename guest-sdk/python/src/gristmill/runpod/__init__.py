"""The names of the hosted services' Python worker, under the paths that it has there. A handler
for that worker needs only another import::

    import gristmill.runpod as runpod
    from gristmill.runpod.serverless.utils.rp_validator import validate

Parts that call the hosted services themselves, such as ``Endpoint`` and ``create_pod``, are not
here.
"""

from __future__ import annotations

from typing import Any

from . import serverless
from .serverless.modules.rp_logger import RunPodLogger

__version__ = "0.1.0"
__all__ = ["RunPodLogger", "serverless"]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"gristmill.runpod has no {name}: it has what a worker uses, runpod.serverless and "
        "RunPodLogger, and nothing that calls the hosted services"
    )
