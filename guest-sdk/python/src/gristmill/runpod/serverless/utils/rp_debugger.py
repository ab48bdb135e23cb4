"""``runpod.serverless.utils.rp_debugger``: times of parts of a handler."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar


class Checkpoints:
    """Named times. All instances are the same one."""

    _instance: ClassVar[Checkpoints | None] = None
    checkpoints: list[dict[str, Any]]

    def __new__(cls) -> Checkpoints:
        if Checkpoints._instance is None:
            Checkpoints._instance = super().__new__(cls)
            Checkpoints._instance.checkpoints = []
        return Checkpoints._instance

    @property
    def name_lookup(self) -> dict[str, int]:
        """The index of each name."""
        return {point["name"]: index for index, point in enumerate(self.checkpoints)}

    def add(self, name: str) -> None:
        """Adds a name. Raises ``KeyError`` if it is there."""
        if name in self.name_lookup:
            raise KeyError(f'Checkpoint name "{name}" already exists.')
        self.checkpoints.append({"name": name})

    def _of(self, name: str) -> dict[str, Any]:
        if name not in self.name_lookup:
            raise KeyError(f"Checkpoint name '{name}' does not exist.")
        return self.checkpoints[self.name_lookup[name]]

    def start(self, name: str) -> None:
        """Begins to measure."""
        self._of(name).update(start=time.perf_counter(), start_utc=datetime.now(UTC).isoformat())

    def stop(self, name: str) -> None:
        """Ends to measure. Raises ``KeyError`` if it has not begun."""
        point = self._of(name)
        if "start" not in point:
            raise KeyError("Checkpoint has not been started.")
        point.update(end=time.perf_counter(), stop_utc=datetime.now(UTC).isoformat())

    def get_checkpoints(self) -> list[dict[str, Any]]:
        """The measured ones, with ``duration_ms``."""
        return [
            {key: value for key, value in point.items() if key not in ("start", "end")}
            | {"duration_ms": (point["end"] - point["start"]) * 1000}
            for point in self.checkpoints
            if "end" in point
        ]

    def clear(self) -> None:
        """Removes all."""
        self.checkpoints.clear()


class LineTimer:
    """Measures a ``with`` block."""

    def __init__(self, name: str) -> None:
        self.checkpoints = Checkpoints()
        self.name = name
        self.checkpoints.add(name)

    def __enter__(self) -> None:
        self.checkpoints.start(self.name)

    def __exit__(self, *error: object) -> None:
        self.checkpoints.stop(self.name)


class FunctionTimer:
    """Measures the calls of a function; a decorator."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.checkpoints = Checkpoints()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with LineTimer(self.function.__name__):
            return self.function(*args, **kwargs)


def get_debugger_output() -> dict[str, Any]:
    """The measured times, and the system; removes the times."""
    points = Checkpoints().get_checkpoints()
    Checkpoints().clear()
    system = {
        "os": f"{platform.system()} {platform.release()}",
        "processor": "WebAssembly",
        "python_version": platform.python_version(),
        "runpod": "gristmill",
    }
    return {"system_info": system, "timestamps": points}


def clear_debugger_output() -> None:
    """Removes the times."""
    Checkpoints().clear()
