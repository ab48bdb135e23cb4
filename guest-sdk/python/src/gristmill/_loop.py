"""The event loop of handlers: tasks, timers, functions for executors, and in a component HTTP.

A component has one thread. Functions for an executor run at once, before ``run_in_executor``
returns. All open HTTP requests of a component are waited for together, so ``asyncio.gather`` over
requests takes as long as the slowest one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ._connection import NO_SOCKETS, PIECE_BYTES_MAX, Connection, Open

_WRITE_BYTES_MAX = 256 << 10
"""Bytes that a protocol may write before it is asked to pause."""


def run_now(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs a function and returns a done ``concurrent.futures.Future``."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()
    try:
        future.set_result(function(*args, **kwargs))
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise
    return future


_selectors: weakref.WeakSet[_Ready] = weakref.WeakSet()
"""The selectors of all loops: a handler may keep a loop for later jobs."""


def end_waits() -> None:
    """Drops what the loops wait for: the job that waited has ended."""
    for selector in [*_selectors]:
        while selector.watched:
            pollable, _ = selector.watched.popitem()
            _drop(pollable)


class _Ready:
    """Waits for timers and, in a component, for the host; in the place of a selector."""

    def __init__(self) -> None:
        self.watched: dict[Any, asyncio.Handle] = {}
        """Pollables of the host, with the callback for each."""
        _selectors.add(self)

    def select(self, timeout: float | None) -> list[asyncio.Handle]:
        if timeout is not None:
            timeout = max(timeout, 0)
        if not self.watched:
            if timeout is None:
                raise RuntimeError("the handler waits for something that nothing will wake")
            if timeout > 0:
                time.sleep(timeout)
            return []
        pollables = [*self.watched]
        ready = [pollables[index] for index in _wait(pollables, timeout)]
        handles = [self.watched.pop(pollable) for pollable in ready]
        for pollable in ready:
            _drop(pollable)
        return handles


class ComponentLoop(asyncio.BaseEventLoop):
    """The event loop of a component; see the module's description."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Ready()

    def _process_events(self, events: list[asyncio.Handle]) -> None:
        self._ready.extend(events)  # type: ignore[attr-defined]

    def _write_to_self(self) -> None:
        pass  # there is no other thread to be woken by

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        if executor is not None:
            return asyncio.wrap_future(executor.submit(func, *args), loop=self)
        return asyncio.wrap_future(run_now(func, *args), loop=self)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass

    async def getaddrinfo(self, host: Any, port: Any, **more: Any) -> list[Any]:
        return socket.getaddrinfo(host, port, **more)

    def watch(self, pollable: Any, callback: Callable[[], None]) -> None:
        """Calls ``callback`` once when the pollable is ready, and drops the pollable."""
        self._selector.watched[pollable] = asyncio.Handle(callback, (), self)

    def unwatch(self, pollable: Any) -> None:
        """Drops a pollable that is still watched."""
        if self._selector.watched.pop(pollable, None):
            _drop(pollable)

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: Any = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        **more: Any,
    ) -> Any:
        if sock is not None:
            if sock._connection is None:
                raise OSError(NO_SOCKETS)
            host, port = sock._peer
        name = host.decode() if isinstance(host, bytes) else str(host)
        connection = Connection(_open, name, int(port))
        if ssl:
            connection.encrypt()
        protocol = protocol_factory()
        return _Transport(self, connection, protocol, (name, int(port)), ssl), protocol

    async def start_tls(self, transport: Any, protocol: Any, sslcontext: Any, **more: Any) -> Any:
        transport._connection.encrypt()
        transport._ssl = sslcontext
        transport.set_protocol(protocol)
        return transport

    async def sock_connect(self, sock: Any, address: Any) -> None:
        sock.connect(address)


class _Transport(asyncio.Transport):
    """A :class:`Connection` as asyncio uses it."""

    def __init__(
        self,
        loop: ComponentLoop,
        connection: Connection,
        protocol: Any,
        peer: tuple[str, int],
        ssl: Any,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._connection = connection
        self._peer = peer
        self._ssl = ssl
        self._reading: Any = None
        """The pollable of the response that is watched, and likewise of the request's body."""
        self._writing: Any = None
        self._is_paused = False
        self._writer_is_paused = False
        self._high = _WRITE_BYTES_MAX
        self._is_closing = False
        self._at_end = False
        self.set_protocol(protocol)
        protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self._peer
        if name == "sockname":
            return ("127.0.0.1", 0)
        if name == "socket":
            return socket.socket()
        if name == "sslcontext" and self._ssl:
            return self._ssl
        if name == "ssl_object" and self._ssl:
            return self._ssl.wrap_bio(None, None)
        return default

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        if self._is_closing:
            return
        if self._writing:
            # With the last bytes the connection drops the stream that this pollable belongs to.
            self._loop.unwatch(self._writing)
            self._writing = None
        try:
            self._connection.feed(bytes(data))
        except OSError as error:
            self._fail(error)
            return
        self._push()
        self._pull_soon()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _WRITE_BYTES_MAX if high is None else high

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return (0, self._high)

    def get_write_buffer_size(self) -> int:
        return self._connection.unsent_bytes

    def _push(self) -> None:
        self._writing = None
        if self._is_closing or not self._connection.unsent_bytes:
            done = True
        else:
            try:
                done = self._connection.push()
            except OSError as error:
                self._fail(error)
                return
        if not done:
            self._writing = self._connection.until_writable()
            self._loop.watch(self._writing, self._push)
        if self._connection.unsent_bytes > self._high and not self._writer_is_paused:
            self._writer_is_paused = True
            self._protocol.pause_writing()
        elif not self._connection.unsent_bytes and self._writer_is_paused:
            self._writer_is_paused = False
            self._protocol.resume_writing()

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._pull_soon()

    def _pull_soon(self) -> None:
        if self._reading is None and self._connection.is_open:
            self._reading = False  # a call is coming
            self._loop.call_soon(self._pull)

    def _pull(self) -> None:
        self._reading = None
        while not (self._is_paused or self._is_closing or self._at_end):
            try:
                data = self._connection.pull(PIECE_BYTES_MAX)
            except OSError as error:
                self._fail(error)
                return
            if data is None:
                self._reading = self._connection.until_readable()
                self._loop.watch(self._reading, self._pull)
                return
            if data:
                self._protocol.data_received(data)
            else:
                self._at_end = True
                if not self._protocol.eof_received():
                    self.close()

    def _fail(self, error: OSError) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lose, error)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self.close()

    def _lose(self, error: OSError | None) -> None:
        # Pollables before the streams that they belong to.
        for pollable in (self._reading, self._writing):
            if pollable:
                self._loop.unwatch(pollable)
        self._connection.close()
        self._protocol.connection_lost(error)


class NativeLoop(asyncio.SelectorEventLoop):
    """The event loop of tests, without a component: functions for executors run at once, as in a
    component."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        return ComponentLoop.run_in_executor(self, executor, func, *args)  # type: ignore[arg-type]

    def _run_once(self) -> None:
        selector = self._selector  # type: ignore[attr-defined]
        is_stuck = not self._ready and not self._scheduled and not self._stopping  # type: ignore[attr-defined]
        # The only file is the one by which other threads wake the loop.
        if is_stuck and len(selector.get_map()) <= 1 and threading.active_count() == 1:
            raise RuntimeError("the handler waits for something that nothing will wake")
        super()._run_once()  # type: ignore[misc]


Loop: type[asyncio.BaseEventLoop] = NativeLoop

_open: Open
_wait: Callable[[Sequence[Any], "float | None"], "set[int]"]
_drop: Callable[[Any], None]


def install(open_exchange: Open, wait: Any, drop: Callable[[Any], None]) -> None:
    """Makes :class:`ComponentLoop` the loop of this process."""
    global Loop, _open, _wait, _drop
    Loop, _open, _wait, _drop = ComponentLoop, open_exchange, wait, drop
    events: Any = asyncio.events
    asyncio.new_event_loop = events.new_event_loop = ComponentLoop
