"""One-shot HTTP. A handler can call only the hosts in its endpoint's ``allowedHosts``; redirects
are returned, not followed. A status such as 404 is an answer, not an error.

    from gristmill import http

    response = http.get("https://api.example.com/v1/items", headers={"accept": "application/json"})
    items = response.json()
"""

from __future__ import annotations

import json as _json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


@dataclass
class Request:
    """A request to send."""

    method: str
    url: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    timeout: float | None = None
    """The longest wait for the whole answer, in seconds. It is never longer than the time
    that remains of the attempt, which is also the default."""


@dataclass
class Response:
    """An answer."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def text(self) -> str:
        """The body as UTF-8; ``UnicodeDecodeError`` if it is not UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return _json.loads(self.body)


class Error(Exception):
    """Why there is no answer.

    ``denied``: the endpoint does not allow this host, or its address is not public.
    ``invalid-request``: the method, URL or a header is malformed. ``too-large``: the body is
    larger than ``limit_bytes``. ``connect``: no connection could be made.
    """

    Kind = Literal["denied", "invalid-request", "timeout", "too-large", "connect", "other"]

    def __init__(self, kind: Kind, what: str = "", limit_bytes: int | None = None) -> None:
        super().__init__(
            {
                "denied": f"HTTP request is not allowed: {what}",
                "invalid-request": f"HTTP request is malformed: {what}",
                "timeout": "HTTP request timed out",
                "too-large": f"HTTP response exceeds the limit: {limit_bytes} bytes",
                "connect": f"HTTP connection failed: {what}",
                "other": f"HTTP request failed: {what}",
            }[kind]
        )
        self.kind: Error.Kind = kind
        self.limit_bytes = limit_bytes


_NO_JSON = object()


def request(
    method: str,
    url: str,
    *,
    headers: Headers = (),
    body: bytes | str = b"",
    json: Any = _NO_JSON,
    timeout: float | None = None,
) -> Response:
    """Sends one request for the running job and waits for the whole answer. ``json`` replaces the
    body and sets ``content-type``. Raises :class:`Error`."""
    from ._context import context

    items = headers.items() if isinstance(headers, Mapping) else headers
    pairs = [(str(name), str(value)) for name, value in items]
    if json is not _NO_JSON:
        body = _json.dumps(json, allow_nan=False)
        pairs.append(("content-type", "application/json"))
    data = body.encode() if isinstance(body, str) else bytes(body)
    return context().http_send(Request(method, url, pairs, data, timeout))


def get(url: str, *, headers: Headers = (), timeout: float | None = None) -> Response:
    """A ``GET``; see :func:`request`."""
    return request("GET", url, headers=headers, timeout=timeout)


def post(
    url: str,
    *,
    headers: Headers = (),
    body: bytes | str = b"",
    json: Any = _NO_JSON,
    timeout: float | None = None,
) -> Response:
    """A ``POST``; see :func:`request`."""
    return request("POST", url, headers=headers, body=body, json=json, timeout=timeout)
