"""The errors of a job and of a chunk."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class FailedJob:
    """A job of another endpoint that ended without an output."""

    id: str
    status: Literal["FAILED", "TIMED_OUT", "CANCELLED"]
    error: str


class CallError(Exception):
    """Why a call of another endpoint has no result.

    ``denied``: the endpoint's ``callEndpoints`` does not have the other endpoint, or this does not
    exist. ``invalid-request``: the endpoint's id, the input or the key is malformed, or the key was
    used for another input. ``limit-reached``: the attempt has made as many calls as it may, the
    chain of calls is too long, or the other endpoint's queue is full. ``failed``: the ``job`` ended
    without an output. ``timeout``: the attempt has no time left to wait; the job continues.
    """

    Kind = Literal["denied", "invalid-request", "limit-reached", "failed", "timeout", "other"]

    def __init__(self, kind: Kind, why: str = "", job: FailedJob | None = None) -> None:
        super().__init__(f"job `{job.id}` is {job.status}: {job.error}" if job else why)
        self.kind: CallError.Kind = kind
        self.job = job
