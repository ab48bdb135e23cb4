"""The context of a job: facts about it, and calls with which a handler sends data while it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from . import _http_types as http_types
from ._errors import CallError, Cancelled, EmitError
from ._values import encode, well_formed

Level = Literal["trace", "debug", "info", "warn", "error"]
"""How much a line in the job's log matters."""


@dataclass(frozen=True)
class S3Config:
    """A place for files, and the credentials for it. A field that the submission left out is
    empty."""

    access_id: str = ""
    access_secret: str = field(default="", repr=False)
    bucket_name: str = ""
    endpoint_url: str = ""


class Host(Protocol):
    """The implementation of a :class:`Context`: the sandbox's imports, or a test's fake. JSON is
    passed as text."""

    def attempt(self) -> int: ...
    def endpoint(self) -> str: ...
    def remaining_ms(self) -> int: ...
    def cancelled(self) -> bool: ...
    def s3_config(self) -> S3Config | None: ...
    def trace_parent(self) -> str | None: ...
    def retire(self) -> None: ...
    def retry_after(self, delay_ms: int | None) -> None: ...
    def emit(self, output: str, metrics: str | None) -> None: ...
    def progress(self, value: str) -> None: ...
    def log(self, level: Level, message: str) -> None: ...
    def http_send(self, request: http_types.Request) -> http_types.Response: ...
    def submit(self, endpoint: str, input: str, key: str | None) -> str: ...
    def call(self, endpoint: str, input: str, key: str | None) -> str: ...


class Context:
    """The running attempt: its properties, and all calls from the handler to the host.

    Calls are cheap and return at once, except :meth:`emit`, which waits while the host's buffer is
    full, :meth:`http_send`, :meth:`submit` and :meth:`call`. Tests create a context with
    ``gristmill.testing.TestContext``.
    """

    def __init__(self, job_id: str, host: Host) -> None:
        self._job_id = job_id
        self._host = host
        self._is_openai = False
        """Whether the job is a call of OpenAI's API, which may have an error as its output."""

    @property
    def job_id(self) -> str:
        """The job's id, as the client sees it."""
        return self._job_id

    @property
    def endpoint(self) -> str:
        """The id of the endpoint that the job was submitted to."""
        return self._host.endpoint()

    @property
    def attempt(self) -> int:
        """1 for the first attempt; one more for each time the job was queued again."""
        return self._host.attempt()

    @property
    def remaining(self) -> float:
        """Seconds until the host stops this attempt; zero when it is over."""
        return self._host.remaining_ms() / 1000

    @property
    def cancelled(self) -> bool:
        """True once the job was cancelled or the host is shutting down. The host stops the attempt
        shortly after that; a handler that checks this value has time to clean up."""
        return self._host.cancelled()

    def check_cancelled(self) -> None:
        """Raises :class:`Cancelled` once :attr:`cancelled` is true."""
        if self.cancelled:
            raise Cancelled

    @property
    def trace_parent(self) -> str | None:
        """The position of this attempt in a distributed trace, as the ``traceparent`` header of W3C
        Trace Context. ``None`` when the submission had none and the host does not trace the job."""
        return self._host.trace_parent()

    @property
    def s3_config(self) -> S3Config | None:
        """Where the handler may store files: the submission's ``s3Config``, if it has one."""
        return self._host.s3_config()

    def retire(self) -> None:
        """Asks the host to give this instance no further job, for example after an error that may
        have left a global in a wrong state. It has no effect on an endpoint without ``reuse``."""
        self._host.retire()

    def retry_after(self, seconds: float) -> None:
        """If this attempt fails, its job runs again after so many seconds, if the rule of its
        retries permits another attempt. The delay is rounded to milliseconds, and is at most 7
        days; a longer one counts as 7 days, and a negative one as zero. The last call of this
        method or of :meth:`never_retry` counts. It has no effect on an attempt that does not fail.
        Raises :class:`ValueError` for NaN."""
        self._host.retry_after(round(min(max(seconds * 1000, 0), 2**32 - 1)))

    def never_retry(self) -> None:
        """If this attempt fails, its job does not run again, whatever the rule of its retries is.
        The last call of this method or of :meth:`retry_after` counts."""
        self._host.retry_after(None)

    def emit(self, output: Any, metrics: dict[str, Any] | None = None) -> None:
        """Appends one chunk to the job's stream; the client receives ``metrics`` together with it.
        Waits while the host's buffer for this job is full. Raises
        :class:`EmitError`."""
        try:
            texts = encode(output), None if metrics is None else encode(metrics)
        except ValueError as error:
            raise EmitError("invalid-json", str(error)) from None
        self._host.emit(*texts)

    def progress(self, value: Any) -> None:
        """Replaces the value that the job's status shows while it runs. Never waits. If values
        follow each other quickly, clients may see only the last one. A value that has no JSON form
        is dropped with a line in the job's log. When the handler fails, the last value stays as the
        job's ``output``, beside its ``error``, unless it has more than 8 KiB."""
        try:
            text = encode(value)
        except ValueError as error:
            self.warn(f"progress value has no JSON form: {error}")
        else:
            self._host.progress(text)

    def log(self, level: Level, message: object) -> None:
        """Writes one line to the job's log, for the people who run the endpoint. The log is
        capped; the host counts the lines beyond its cap. ``print`` and ``logging`` write to the
        same log."""
        self._host.log(level, well_formed(str(message)))

    def trace(self, message: object) -> None:
        """:meth:`log` at ``trace``: every step."""
        self.log("trace", message)

    def debug(self, message: object) -> None:
        """:meth:`log` at ``debug``: for the author of the handler."""
        self.log("debug", message)

    def info(self, message: object) -> None:
        """:meth:`log` at ``info``: normal messages for readers of the log."""
        self.log("info", message)

    def warn(self, message: object) -> None:
        """:meth:`log` at ``warn``: the job continues, but the line deserves attention."""
        self.log("warn", message)

    def error(self, message: object) -> None:
        """:meth:`log` at ``error``: something failed. The job continues; raise to end it."""
        self.log("error", message)

    def http_send(self, request: http_types.Request) -> http_types.Response:
        """Sends one HTTP request and waits for the whole answer; ``gristmill.http`` has shorter
        forms. Raises :class:`gristmill.http.Error`."""
        return self._host.http_send(request)

    def submit(self, endpoint: str, input: Any, *, idempotency_key: str | None = None) -> str:
        """Submits a job to another endpoint of the same owner, and returns its id. The job is on
        stable storage then. A handler can call only the endpoints in its endpoint's
        ``callEndpoints``. Raises :class:`CallError`.

        The key makes the call safe to repeat, for example when this attempt runs again after a
        crash of the host: for 24 hours, a call with the same key and input refers to the job of the
        first one."""
        return self._host.submit(*_call_texts(endpoint, input, idempotency_key))

    def call(self, endpoint: str, input: Any, *, idempotency_key: str | None = None) -> Any:
        """Submits a job to another endpoint and waits for its output, until shortly before the end
        of this attempt. After a :meth:`submit` with the same key and input it waits for that job, so
        that several jobs can run at once. Raises :class:`CallError`."""
        return json.loads(self._host.call(*_call_texts(endpoint, input, idempotency_key)))


def _call_texts(endpoint: str, input: Any, key: str | None) -> tuple[str, str, str | None]:
    try:
        text = encode(input)
    except ValueError as error:
        raise CallError("invalid-request", f"the input has no JSON form: {error}") from None
    return well_formed(endpoint), text, None if key is None else well_formed(key)


_running: ContextVar[Context] = ContextVar("gristmill.context")


def context() -> Context:
    """The context of the running job, for code that does not have it as an argument."""
    try:
        return _running.get()
    except LookupError:
        raise RuntimeError("no job is running: call gristmill.context() in a handler") from None


@contextmanager
def running(ctx: Context) -> Iterator[None]:
    """Makes :func:`context` return ``ctx``."""
    token = _running.set(ctx)
    try:
        yield
    finally:
        _running.reset(token)
