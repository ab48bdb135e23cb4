"""Connections of the sandbox, which has no sockets: the far end of a connection is the host's HTTP.

HTTP libraries write an HTTP/1.1 request to a socket and read the response from it. A
:class:`Connection` reads such a request, sends it with ``wasi:http``, and writes the response as
HTTP/1.1, both in pieces: nothing but a head is kept in memory. So ``requests``, ``httpx``,
``urllib3``, ``aiohttp`` and ``http.client`` work as they are.

A connection has one request and one response, which says ``Connection: close``: the host keeps the
real connections open. Bounds: a head has at most 64 KiB, pieces of a body at most 64 KiB.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

TLS_MARK = b"\x16gristmill-tls\n"
"""The first bytes of a connection that the client believes to be encrypted; the module ``ssl`` of
the sandbox writes them instead of a handshake."""

HEAD_BYTES_MAX = 64 << 10
PIECE_BYTES_MAX = 64 << 10

# They belong to one connection, not to the request: the host writes its own.
_HOP_BY_HOP = {
    b"connection",
    b"expect",
    b"host",
    b"http2-settings",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}

NO_SOCKETS = (
    "a component has no sockets, only HTTP: requests, httpx, urllib and http.client work, and "
    "other protocols do not"
)


class Exchange(Protocol):
    """One HTTP request of the host. No call waits: ``None`` and 0 mean that the caller must wait
    for the pollable of that side."""

    def write(self, data: bytes) -> int: ...
    def finish(self) -> None: ...
    def head(self) -> tuple[int, list[tuple[bytes, bytes]]] | None: ...
    def read(self, most: int) -> bytes | None: ...
    def until_writable(self) -> Any: ...
    def until_head(self) -> Any: ...
    def until_readable(self) -> Any: ...
    def close(self) -> None: ...


Open = Callable[[str, str, str, str, list[tuple[bytes, bytes]], bool], Exchange]
"""Begins an exchange: method, scheme, authority, path with query, headers, whether it has a body."""


class Connection:
    """The far end of a connection to ``host``. Errors are ``OSError``, as those of a socket."""

    def __init__(self, open_exchange: Open, host: str, port: int) -> None:
        self._open = open_exchange
        self._host, self._port = host, port
        self._tls = False
        self._head: bytearray | None = bytearray()
        """The bytes of the request's head, until it is complete."""
        self._body: _Body | None = None
        self._unsent = bytearray()
        """The part of the request's body that the host has not taken yet."""
        self._exchange: Exchange | None = None
        self._finished = False
        self._method = ""
        self._response = bytearray()
        """The bytes of the response that the client has not read yet."""
        self._has_head = False
        self._chunked = False
        self._at_end = False

    def encrypt(self) -> None:
        """Sends the request by ``https``, as if the client had begun with :data:`TLS_MARK`."""
        self._tls = True

    @property
    def is_open(self) -> bool:
        """Whether a request was sent, so that there will be a response."""
        return self._exchange is not None

    @property
    def has_response(self) -> bool:
        """Whether :meth:`pull` has something to return at once."""
        return bool(self._response) or self._at_end

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were fed and not taken by the host."""
        return len(self._unsent)

    def feed(self, data: bytes) -> None:
        """Takes bytes from the client. Raises ``OSError`` for other protocols than HTTP/1.1."""
        if self._head is None:
            self._feed_body(data)
            return
        self._head += data
        if not self._tls and self._head.startswith(TLS_MARK):
            self._tls = True
            del self._head[: len(TLS_MARK)]
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            line = self._head.split(b"\r\n", 1)
            if len(self._head) > HEAD_BYTES_MAX or (len(line) > 1 and b" HTTP/1." not in line[0]):
                raise OSError(errno.EPROTONOSUPPORT, NO_SOCKETS)
            if not self._head[:1].isalpha() and self._head and not self._tls_may_follow():
                raise OSError(errno.EPROTONOSUPPORT, NO_SOCKETS)
            return
        head, rest = bytes(self._head[:end]), bytes(self._head[end + 4 :])
        self._head = None
        self._begin(head)
        self._feed_body(rest)

    def _tls_may_follow(self) -> bool:
        return not self._tls and TLS_MARK.startswith(bytes(self._head or b""))

    def _begin(self, head: bytes) -> None:
        request_line, *lines = head.split(b"\r\n")
        words = request_line.split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            raise OSError(errno.EPROTONOSUPPORT, NO_SOCKETS)
        method, target = words[0].decode("latin-1"), words[1].decode("latin-1")
        if method == "CONNECT":
            raise OSError(errno.EPROTONOSUPPORT, "a component cannot use an HTTP proxy")
        headers = []
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon:
                raise OSError(errno.EPROTO, f"malformed header line: {line[:100]!r}")
            headers.append((name.strip().lower(), value.strip()))
        fields = dict(headers)
        if b"chunked" in fields.get(b"transfer-encoding", b"").lower():
            self._body = _Chunked()
        else:
            length = fields.get(b"content-length", b"0")
            if not length.isdigit():
                raise OSError(errno.EPROTO, f"malformed content-length: {length[:100]!r}")
            self._body = _Sized(int(length))
        scheme, authority = "https" if self._tls else "http", self._authority()
        if target.startswith(("http://", "https://")):  # the form for a proxy
            scheme, _, target = target.partition("://")
            authority, slash, target = target.partition("/")
            target = slash + target
        self._method = method
        kept = [(name, value) for name, value in headers if name not in _HOP_BY_HOP]
        has_body = not self._body.is_complete
        self._exchange = self._open(method, scheme, authority, target, kept, has_body)
        if b"100-continue" in fields.get(b"expect", b"").lower():
            self._response += b"HTTP/1.1 100 Continue\r\n\r\n"
        self._finish_if_complete()

    def _authority(self) -> str:
        host = self._host
        try:
            if ipaddress.ip_address(host).version == 6:
                host = f"[{host}]"
        except ValueError:
            pass
        default = 443 if self._tls else 80
        return host if self._port == default else f"{host}:{self._port}"

    def _feed_body(self, data: bytes) -> None:
        if not data or self._body is None:
            return
        if self._body.is_complete:
            raise OSError(errno.EPROTO, "a connection of a component has one request")
        self._unsent += self._body.take(data)
        self.push()

    def push(self) -> bool:
        """Passes on as much of the request's body as the host takes now. Whether all is passed on;
        if not, wait for :meth:`until_writable`."""
        assert self._exchange
        while self._unsent:
            try:
                count = self._exchange.write(bytes(self._unsent[:PIECE_BYTES_MAX]))
            except OSError:
                # The server answered before it read everything, or the response has the error.
                self._unsent.clear()
                self._finished = True
                break
            if count == 0:
                return False
            del self._unsent[:count]
        self._finish_if_complete()
        return True

    def _finish_if_complete(self) -> None:
        if self._body and self._body.is_complete and not self._unsent and not self._finished:
            assert self._exchange
            self._finished = True
            self._exchange.finish()

    def pull(self, most: int) -> bytes | None:
        """The next bytes of the response; ``b""`` at its end, ``None`` to wait for
        :meth:`until_readable`."""
        if self._exchange is None:
            raise OSError(errno.ENOTCONN, "no request was sent, so there is no response")
        while not self._response and not self._at_end:
            if not self._advance():
                return None
        data = bytes(self._response[:most])
        del self._response[:most]
        return data

    def _advance(self) -> bool:
        """Moves bytes from the host to ``_response``; whether there were some, or the end."""
        assert self._exchange
        if not self._has_head:
            head = self._exchange.head()
            if head is None:
                return False
            self._response += self._head_of_response(*head)
            return True
        data = self._exchange.read(PIECE_BYTES_MAX)
        if data is None:
            return False
        if data:
            self._response += b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data
        else:
            self._at_end = True
            self._response += b"0\r\n\r\n" if self._chunked else b""
        return True

    def _head_of_response(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        try:
            reason = HTTPStatus(status).phrase
        except ValueError:
            reason = "Unknown"
        lines = [f"HTTP/1.1 {status} {reason}".encode()]
        lines += [b"%b: %b" % pair for pair in headers if pair[0].lower() not in _HOP_BY_HOP]
        lines.append(b"connection: close")
        has_body = self._method != "HEAD" and status >= 200 and status not in (204, 304)
        if has_body and not any(name.lower() == b"content-length" for name, _ in headers):
            # Like the server's own framing: clients pass on each chunk when it arrives.
            self._chunked = True
            lines.append(b"transfer-encoding: chunked")
        self._at_end = not has_body
        self._has_head = True
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def until_writable(self) -> Any:
        """What to wait for before the next :meth:`push`."""
        assert self._exchange
        return self._exchange.until_writable()

    def until_readable(self) -> Any:
        """What to wait for before the next :meth:`pull`."""
        assert self._exchange
        return self._exchange.until_readable() if self._has_head else self._exchange.until_head()

    def close(self) -> None:
        """Ends the exchange. A response that is not read to its end is dropped."""
        if self._exchange is not None:
            self._exchange.close()
            self._at_end = True

    # A client may forget to close a connection, and a job has a limited number of open requests.
    __del__ = close


class _Sized:
    """A body with a ``content-length``."""

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def is_complete(self) -> bool:
        return self._left == 0

    def take(self, data: bytes) -> bytes:
        if len(data) > self._left:
            raise OSError(errno.EPROTO, "the request's body is longer than its content-length")
        self._left -= len(data)
        return data


class _Chunked:
    """A body with ``transfer-encoding: chunked``."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0
        """Bytes of the present chunk and of the line end after it."""
        self.is_complete = False
        self._in_trailers = False

    def take(self, data: bytes) -> bytes:
        self._buffer += data
        body = bytearray()
        while True:
            if self._left > 2:
                part = self._buffer[: self._left - 2]
                body += part
                del self._buffer[: len(part)]
                self._left -= len(part)
            if self._left and self._left <= 2:
                end = min(self._left, len(self._buffer))
                del self._buffer[:end]
                self._left -= end
            if self._left:
                return bytes(body)
            end = self._buffer.find(b"\r\n")
            if end < 0:
                if len(self._buffer) > HEAD_BYTES_MAX:
                    raise OSError(errno.EPROTO, "malformed chunk of the request's body")
                return bytes(body)
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 2]
            if self._in_trailers:
                if not line:
                    self.is_complete = True
                    return bytes(body)
                continue  # a trailer: no server of today needs one
            try:
                size = int(line.split(b";", 1)[0], 16)
            except ValueError:
                raise OSError(errno.EPROTO, "malformed chunk of the request's body") from None
            if size == 0:
                self._in_trailers = True
            else:
                self._left = size + 2


_Body = _Sized | _Chunked
