"""The server side of WSGI (PEP 3333), over the HTTP of the host.

**Promise.** Each block of the application is sent before the next one is asked for. An exception
before the head of the answer becomes an answer with the status 500, whose traceback is in the log
alone. After the head, the answer is left without its end, which breaks the connection, so that half an
answer does not look complete. A client that leaves ends the application.

**Bounds.** No body is kept in memory: one block of the application and one read of the request.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from ._report import formatted

_PREFIX = "x-forwarded-prefix"


class Exchange(Protocol):
    """One request, and its answer. Calls wait for the client; one that has left is an ``OSError``."""

    method: str
    scheme: str
    authority: str
    target: str
    headers: list[tuple[str, bytes]]

    def read(self, most: int) -> bytes: ...
    def start(self, status: int, headers: list[tuple[str, bytes]]) -> None: ...
    def write(self, data: bytes) -> None: ...
    def finish(self) -> None: ...


def answer(
    application: Callable[..., Any], exchange: Exchange, log: Callable[[str], None]
) -> None:
    """Calls the application and sends its answer; ``log`` gets the traceback of an exception."""
    sent = _Answer(exchange)
    try:
        sent.send(application(environ(exchange), sent.start_response))
    except BaseException as error:  # SystemExit too: a trap would have a worse message
        if sent.is_left:
            return
        log(formatted(error).removesuffix("\n"))
        if not sent.is_started:
            body = b"internal error\n"
            headers = [("content-type", b"text/plain"), ("content-length", b"%d" % len(body))]
            exchange.start(500, headers)
            exchange.write(body)
            exchange.finish()


class _Answer:
    """The answer of one call of an application."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._head: tuple[int, list[tuple[str, bytes]]] | None = None
        self.is_started = False
        """Whether the client has the head."""
        self.is_left = False
        """Whether the client has left."""

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        if exc_info:
            try:
                if self.is_started:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None  # as PEP 3333 wants it: no circle of references
        elif self._head:
            raise AssertionError("start_response was called twice, without exc_info")
        pairs = [(name.lower(), value.encode("latin-1")) for name, value in headers]
        self._head = (int(status.split(" ", 1)[0]), pairs)
        return self._write

    def send(self, blocks: Iterable[bytes]) -> None:
        try:
            # A body of one block has a known length.
            is_whole = isinstance(blocks, (list, tuple)) and len(blocks) == 1
            for block in blocks:
                if block:
                    self._write(block, is_whole)
            if not self.is_started:
                self._start(0)
            self._calling(self._exchange.finish)
        finally:
            if close := getattr(blocks, "close", None):
                close()

    def _write(self, block: bytes, is_whole: bool = False) -> None:
        if not self.is_started:
            self._start(len(block) if is_whole else None)
        self._calling(lambda: self._exchange.write(block))

    def _start(self, length: int | None) -> None:
        if self._head is None:
            raise AssertionError("the application has not called start_response")
        status, headers = self._head
        has_body = status >= 200 and status not in (204, 304)
        if length is not None and has_body and all(name != "content-length" for name, _ in headers):
            headers = [*headers, ("content-length", b"%d" % length)]
        self._exchange.start(status, headers)
        self.is_started = True

    def _calling(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError:
            self.is_left = True
            raise


class _Input(io.RawIOBase):
    """``wsgi.input``: the body of the request as it comes."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._exchange.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def environ(exchange: Exchange) -> dict[str, Any]:
    """The ``environ`` of a request. ``SCRIPT_NAME`` is what the host has taken from the path."""
    fields: dict[str, str] = {}
    for name, value in exchange.headers:
        text = value.decode("latin-1")
        divider = "; " if name == "cookie" else ", "
        fields[name] = f"{fields[name]}{divider}{text}" if name in fields else text
    path, _, query = exchange.target.partition("?")
    host, _, port = exchange.authority.rpartition(":")
    if not host or not port.isdigit():
        host, port = exchange.authority, "443" if exchange.scheme == "https" else "80"
    result = {
        "REQUEST_METHOD": exchange.method,
        "SCRIPT_NAME": fields.get(_PREFIX, ""),
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "REQUEST_URI": exchange.target,
        "SERVER_NAME": host,
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": fields.get("x-forwarded-for", ""),
        "HTTP_HOST": exchange.authority,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": exchange.scheme,
        "wsgi.input": io.BufferedReader(_Input(exchange)),
        # A body without a length ends nevertheless: an application may read to its end.
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, text in fields.items():
        key = name.upper().replace("-", "_")
        result[key if name in ("content-type", "content-length") else f"HTTP_{key}"] = text
    return result
