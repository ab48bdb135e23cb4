"""An event loop for a place without sockets: tasks and timers, no input or output.

That is all that ``asyncio`` needs for ``sleep``, ``gather``, queues and timeouts. HTTP is
``gristmill.http``, which waits.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any


class _Sleeper:
    """Stands in for a selector: nothing ever becomes ready, only time passes."""

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("the handler waits for something that nothing will wake")
        if timeout > 0:
            time.sleep(timeout)
        return []


class Loop(asyncio.BaseEventLoop):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Sleeper()

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass  # there is no other thread to be woken by
