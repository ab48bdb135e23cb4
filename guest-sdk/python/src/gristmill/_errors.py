"""The errors of a job and of a chunk."""

from __future__ import annotations

from typing import Any, Literal


class Error(Exception):
    """The failure of a job that its handler cannot complete: raise one of the three classes below.

    Each makes the job ``FAILED``, and the host does not run it again: it runs a job again only if
    the host itself stopped during the job. Any other exception has the same effect, with its
    traceback in the job's log.

    ``message`` is one sentence for the person who submitted the job. ``details`` is any JSON
    value with information for programs; both become the job's ``error``.
    """

    def __init__(self, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class InvalidInput(Error):
    """The handler does not accept the input."""


class Failed(Error):
    """The work could not be done."""


class Cancelled(Error):
    """The handler stopped because :attr:`Context.cancelled` was true."""

    def __init__(self) -> None:
        super().__init__("cancelled")


class EmitError(Exception):
    """Why a chunk was not added to the job's stream.

    ``closed``: the attempt is over, and chunks are no longer read. ``invalid-json``: the output has
    no JSON form, or the metrics are not a JSON object. ``quota-exceeded``: with this chunk, the
    attempt would have emitted more than ``limit_bytes``.
    """

    Kind = Literal["closed", "invalid-json", "quota-exceeded"]

    def __init__(self, kind: Kind, why: str = "", limit_bytes: int | None = None) -> None:
        super().__init__(
            {
                "closed": "stream is closed: the attempt is over",
                "invalid-json": f"chunk is not JSON: {why}",
                "quota-exceeded": f"chunks exceed the attempt's limit: {limit_bytes} bytes",
            }[kind]
        )
        self.kind: EmitError.Kind = kind
        self.limit_bytes = limit_bytes
