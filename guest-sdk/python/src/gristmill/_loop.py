"""An event loop for the sandbox, which has no sockets: tasks and timers, no input or output.

``asyncio`` needs no more for ``sleep``, ``gather``, queues and timeouts. For HTTP there is
``gristmill.http``, whose calls block.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any


class _Sleeper:
    """Replaces the selector: no file ever becomes ready; it only waits for timers."""

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("the handler waits for something that nothing will wake")
        if timeout > 0:
            time.sleep(timeout)
        return []


class Loop(asyncio.BaseEventLoop):
    """The event loop; see the module's description."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Sleeper()

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass  # there is no other thread to be woken by
