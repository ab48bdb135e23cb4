"""``runpod.serverless.VolumeCache``."""

from __future__ import annotations

from typing import Any


class VolumeCache:
    """Does nothing: a model that the module loads is a part of the component, and other files
    belong on a network volume."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> VolumeCache:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def hydrate(self) -> None:
        """Does nothing."""

    def sync(self) -> None:
        """Does nothing."""
