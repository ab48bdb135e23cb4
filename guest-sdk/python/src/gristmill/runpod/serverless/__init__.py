"""``runpod.serverless``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...serverless import progress_update, start
from . import modules, utils
from ._volume_cache import VolumeCache
from .modules.rp_logger import RunPodLogger

__all__ = [
    "VolumeCache",
    "log",
    "modules",
    "progress_update",
    "register_fitness_check",
    "start",
    "utils",
]

log = RunPodLogger()


def register_fitness_check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, which is never called: the host checks its sandboxes itself."""
    return function
