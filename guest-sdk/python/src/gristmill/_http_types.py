"""The requests, answers and errors of :mod:`gristmill.http`."""

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
