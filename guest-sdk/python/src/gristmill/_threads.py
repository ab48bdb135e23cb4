"""Threads of the sandbox, which has one: functions for other threads run at once, in the calling
thread. Only a component uses this module.

``Thread(target=f).start()`` and ``ThreadPoolExecutor.submit(f)`` return when ``f`` has returned.
That gives the same results for functions that do not wait for each other. A function that waits
for another thread can never go on, so it gets an error instead, and so do threads that are made to
run beside the handler: daemons and timers.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.thread
import threading
from collections.abc import Callable
from typing import Any

from ._loop import run_now

_ONE = "a component has one thread"


class _Deadlock(RuntimeError):
    pass


def _start(self: Any) -> None:
    """``Thread.start``."""
    if self._started.is_set():
        raise RuntimeError("threads can only be started once")
    if self.daemon or isinstance(self, threading.Timer):
        kind = "a timer" if isinstance(self, threading.Timer) else "a daemon thread"
        raise RuntimeError(f"can't start {kind}: {_ONE}")
    self._started.set()
    try:
        self.run()
    except _Deadlock:
        raise
    except SystemExit:
        pass
    except BaseException:
        self._invoke_excepthook(self)


def _join(self: Any, timeout: float | None = None) -> None:
    """``Thread.join``."""
    if not self._started.is_set():
        raise RuntimeError("cannot join thread before it is started")


class InlineExecutor(concurrent.futures.Executor):
    """``ThreadPoolExecutor`` whose functions run when they are submitted."""

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
        **more: Any,
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        self._max_workers = max_workers or 1
        self._is_shut_down = False
        if initializer:
            initializer(*initargs)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return run_now(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut_down = True


def install_for_anyio(backend: Any) -> None:
    """Lets ``anyio.to_thread.run_sync`` run its function at once, like ``asyncio.to_thread``; its own
    threads wait for work. ``backend`` is the module ``anyio._backends._asyncio``."""

    async def run_sync(cls: Any, func: Any, args: Any, *more: Any, **settings: Any) -> Any:
        return func(*args)

    backend.AsyncIOBackend.run_sync_in_worker_thread = classmethod(run_sync)


def install() -> None:
    """Replaces the functions of ``threading`` and ``concurrent.futures``."""
    thread: Any = threading.Thread
    thread.start, thread.join = _start, _join
    thread.is_alive = lambda self: False
    waited = threading.Condition.wait

    def wait(self: Any, timeout: float | None = None) -> bool:
        if timeout is None:
            raise _Deadlock(f"the handler waits for another thread, but {_ONE}")
        return waited(self, timeout)

    condition: Any = threading.Condition
    condition.wait = wait
    for module in (concurrent.futures, concurrent.futures.thread):
        module.ThreadPoolExecutor = InlineExecutor  # type: ignore[attr-defined]
