"""``socket.socket``, ``select`` and name lookups of the sandbox: a stream socket is a
:class:`gristmill._connection.Connection`, and every other kind is refused with a sentence that says
what there is instead. Only a component uses this module.
"""

from __future__ import annotations

import errno
import io
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ._connection import NO_SOCKETS, Connection, Open

_FIRST_DESCRIPTOR = 1 << 20
"""Descriptors of these sockets are above all those of files."""

Wait = Callable[[Sequence[Any], "float | None"], "set[int]"]

_open: Open
_wait: Wait
_drop: Callable[[Any], None]
_by_descriptor: dict[int, Socket] = {}
_default_timeout: float | None = None


def _refused() -> OSError:
    return OSError(errno.EOPNOTSUPP, NO_SOCKETS)


class Socket:
    """A stream socket that speaks HTTP/1.1, with the methods of ``socket.socket``."""

    def __init__(
        self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None
    ) -> None:
        if fileno is not None:
            raise _refused()
        self.family = socket.AddressFamily(family if family > 0 else socket.AF_INET)
        self.type = socket.SocketKind(type & 0xF if type > 0 else socket.SOCK_STREAM)
        self.proto = proto if proto > 0 else 0
        if self.type != socket.SOCK_STREAM:
            raise _refused()
        self._timeout = _default_timeout
        self._connection: Connection | None = None
        self._peer: tuple[str, int] = ("", 0)
        self._closed = False
        self._files = 0
        self._descriptor = _FIRST_DESCRIPTOR
        while self._descriptor in _by_descriptor:
            self._descriptor += 1
        _by_descriptor[self._descriptor] = self

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def connect(self, address: tuple[Any, ...]) -> None:
        """Remembers the address; the host connects when it has the request."""
        if not isinstance(address, tuple) or len(address) < 2:
            raise _refused()
        host = address[0].decode() if isinstance(address[0], bytes) else str(address[0])
        self._peer = (host, int(address[1]))
        self._connection = Connection(_open, *self._peer)

    def connect_ex(self, address: tuple[Any, ...]) -> int:
        self.connect(address)
        return 0

    def _connected(self) -> Connection:
        if self._closed:
            raise OSError(errno.EBADF, "the socket is closed")
        if self._connection is None:
            raise OSError(errno.ENOTCONN, "the socket is not connected")
        return self._connection

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = None if timeout is None else float(timeout)

    def gettimeout(self) -> float | None:
        return self._timeout

    @property
    def timeout(self) -> float | None:
        return self._timeout

    def setblocking(self, blocking: bool) -> None:
        self._timeout = None if blocking else 0.0

    def getblocking(self) -> bool:
        return self._timeout != 0.0

    def setsockopt(self, *option: object) -> None:
        """The host's connections have options of their own."""

    def getsockopt(self, *option: object) -> int:
        return 0

    def getpeername(self) -> tuple[str, int]:
        self._connected()
        return self._peer

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 0)

    def fileno(self) -> int:
        return -1 if self._closed else self._descriptor

    def get_inheritable(self) -> bool:
        return False

    def set_inheritable(self, inheritable: bool) -> None:
        pass

    def sendall(self, data: Any, flags: int = 0) -> None:
        connection = self._connected()
        connection.feed(bytes(data))
        while connection.unsent_bytes and not connection.push():
            self._block(connection.until_writable())

    def send(self, data: Any, flags: int = 0) -> int:
        self.sendall(data)
        return memoryview(data).nbytes

    def recv(self, most: int, flags: int = 0) -> bytes:
        connection = self._connected()
        while (data := connection.pull(most)) is None:
            self._block(connection.until_readable())
        return data

    def recv_into(self, buffer: Any, most: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        data = self.recv(most or len(view))
        view[: len(data)] = data
        return len(data)

    def _block(self, pollable: Any) -> None:
        try:
            if not _wait([pollable], self._timeout):
                if self._timeout == 0:
                    raise BlockingIOError(errno.EAGAIN, "would block")
                raise TimeoutError("timed out")
        finally:
            _drop(pollable)

    def is_readable(self, timeout: float | None) -> bool:
        """Whether :meth:`recv` would not wait; waits for it, at most ``timeout`` seconds."""
        connection = self._connection
        if self._closed or connection is None or not connection.is_open:
            return False
        if connection.has_response:
            return True
        pollable = connection.until_readable()
        try:
            return bool(_wait([pollable], timeout))
        finally:
            _drop(pollable)

    def makefile(
        self,
        mode: str = "r",
        buffering: int | None = None,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        self._files += 1
        raw = _File(self, mode)
        if buffering == 0:
            return raw
        size = io.DEFAULT_BUFFER_SIZE if buffering in (None, -1) else buffering or 1
        file: Any
        if "w" in mode and "r" in mode:
            file = io.BufferedRWPair(raw, raw, size)
        elif "w" in mode:
            file = io.BufferedWriter(raw, size)
        else:
            file = io.BufferedReader(raw, size)
        return file if "b" in mode else io.TextIOWrapper(file, encoding, errors, newline)

    def shutdown(self, how: int) -> None:
        pass

    def detach(self) -> int:
        raise _refused()

    def close(self) -> None:
        self._closed = True
        if not self._files:
            self._end()

    def _file_closed(self) -> None:
        self._files -= 1
        if self._closed and not self._files:
            self._end()

    def _end(self) -> None:
        _by_descriptor.pop(self._descriptor, None)
        if self._connection is not None:
            self._connection.close()

    def _no_server(self, *args: object, **kwargs: object) -> Any:
        raise _refused()

    bind = listen = accept = sendto = recvfrom = recvfrom_into = sendmsg = recvmsg = dup = (
        _no_server
    )


class _File(io.RawIOBase):
    """A file of a socket, which keeps the socket open."""

    def __init__(self, owner: Socket, mode: str) -> None:
        self._owner = owner
        self._mode = mode

    def readable(self) -> bool:
        return "r" in self._mode or "w" not in self._mode

    def writable(self) -> bool:
        return "w" in self._mode

    def readinto(self, buffer: Any) -> int:
        was_closed, self._owner._closed = self._owner._closed, False
        try:
            return self._owner.recv_into(buffer)
        finally:
            self._owner._closed = was_closed

    def write(self, data: Any) -> int:
        return self._owner.send(data)

    def fileno(self) -> int:
        return self._owner.fileno()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._owner._file_closed()


def getaddrinfo(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[tuple[Any, ...]]:
    """The name itself: the host looks it up, for the addresses that the handler may reach."""
    name = host.decode() if isinstance(host, bytes) else (host or "localhost")
    if isinstance(port, (str, bytes)) and not port.isdigit():
        service = port.decode() if isinstance(port, bytes) else port
        port = {"http": 80, "https": 443}.get(service)
        if port is None:
            raise socket.gaierror(8, f"{NO_SOCKETS} (service {service})")
    if type not in (0, socket.SOCK_STREAM):
        raise socket.gaierror(8, NO_SOCKETS)
    address = (name, int(port or 0))
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]


def _gethostbyname(name: str) -> str:
    raise socket.gaierror(
        8, f"a component cannot look up {name}: the host does it for HTTP requests"
    )


def _setdefaulttimeout(timeout: float | None) -> None:
    global _default_timeout
    _default_timeout = timeout


def _socket_of(entry: Any) -> Socket | None:
    descriptor = entry if isinstance(entry, int) else entry.fileno()
    return _by_descriptor.get(descriptor)


class _Poll:
    """``select.poll`` for these sockets: always writable; readable when the response is there."""

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}

    def register(self, entry: Any, mask: int = select.POLLIN | select.POLLOUT) -> None:
        self._masks[entry if isinstance(entry, int) else entry.fileno()] = mask

    modify = register

    def unregister(self, entry: Any) -> None:
        del self._masks[entry if isinstance(entry, int) else entry.fileno()]

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout / 1000
        for descriptor, mask in self._masks.items():
            entry = _by_descriptor.get(descriptor)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if entry is None:
                found.append((descriptor, select.POLLNVAL))
            elif mask & select.POLLOUT:
                found.append((descriptor, select.POLLOUT))
            elif mask & select.POLLIN and entry.is_readable(0 if found else left):
                found.append((descriptor, select.POLLIN))
        if not self._masks and timeout:
            time.sleep(timeout / 1000)
        return found


def _select(
    readers: Iterable[Any], writers: Iterable[Any], errors: Iterable[Any], timeout: Any = None
) -> tuple[list[Any], list[Any], list[Any]]:
    writers, readers = [*writers], [*readers]
    wait = 0 if writers else timeout
    return [r for r in readers if (s := _socket_of(r)) and s.is_readable(wait)], writers, []


def install(open_exchange: Open, wait: Wait, drop: Callable[[Any], None]) -> None:
    """Makes the module ``socket`` use these."""
    global _open, _wait, _drop
    _open, _wait, _drop = open_exchange, wait, drop
    module: Any = socket
    module.socket = module.SocketType = Socket
    module.getaddrinfo = getaddrinfo
    module.gethostbyname = module.gethostbyname_ex = module.gethostbyaddr = _gethostbyname
    module.setdefaulttimeout = _setdefaulttimeout
    module.getdefaulttimeout = lambda: _default_timeout
    module.gethostname = lambda: "localhost"
    module.getfqdn = lambda name="": name or "localhost"
    module.has_ipv6 = False
    events: Any = select
    events.select = _select
    events.poll = _Poll
