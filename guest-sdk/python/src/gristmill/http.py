"""One-shot HTTP. A handler can call only the hosts in its endpoint's ``allowedHosts``; redirects
are returned, not followed. A status such as 404 is an answer, not an error.

    from gristmill import http

    response = http.get("https://api.example.com/v1/items", headers={"accept": "application/json"})
    items = response.json()
"""

from __future__ import annotations

import json as _json
from collections.abc import Mapping
from typing import Any

from ._context import context
from ._http_types import Error, Headers, Request, Response

__all__ = ["Error", "Headers", "Request", "Response", "get", "post", "request"]

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
    body and sets ``content-type``, unless ``headers`` has one. Raises :class:`Error`."""
    items = headers.items() if isinstance(headers, Mapping) else headers
    pairs = [(str(name), str(value)) for name, value in items]
    if json is not _NO_JSON:
        body = _json.dumps(json, allow_nan=False)
        if not any(name.lower() == "content-type" for name, _ in pairs):
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
