"""A fake host, so that handlers run in a plain ``pytest`` or ``unittest``.

    from gristmill.testing import TestContext
    from handler import count

    def test_words_are_counted():
        assert TestContext().run(count, {"text": "to be or not"}) == {"words": 4}

The fake has no timing: ``emit`` never waits, every progress value is kept, and nothing stops a
handler that does not return.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import _handler, http
from ._context import Context, Level, S3Config
from ._errors import CallError, EmitError
from ._handler import Chunk

Answer = http.Response | http.Error


@dataclass(frozen=True)
class Call:
    """A call of another endpoint."""

    endpoint: str
    input: Any
    idempotency_key: str | None = None


class TestContext(Context):
    """A context with prepared answers, which records what the handler sends."""

    __test__ = False  # pytest takes classes of such names for tests

    def __init__(
        self,
        *,
        job_id: str = "test-job",
        endpoint: str = "test-endpoint",
        attempt: int = 1,
        remaining: float = 600,
        cancelled: bool = False,
        cancelled_after: int | None = None,
        s3_config: S3Config | None = None,
        trace_parent: str | None = None,
        emit_quota: int | None = None,
        emit_closed: bool = False,
        http: Mapping[str, Answer | Iterable[Answer]] = {},
        endpoints: Mapping[str, Any] = {},
    ) -> None:
        """``cancelled_after`` is a number of chunks, ``emit_quota`` one of bytes. ``http`` has the
        answers by exact URL: the last answer of a list repeats; any other URL is denied.
        ``endpoints`` has the results of :meth:`Context.call` by endpoint, in the same way; a result
        is a value or a :class:`gristmill.CallError`, and one that is a list needs a list around
        it."""
        self._settings = endpoint, attempt, remaining
        self._cancelled_after = 0 if cancelled else cancelled_after
        self._s3_config = s3_config
        self._trace_parent = trace_parent
        self._emit_quota = emit_quota
        self._emit_closed = emit_closed
        self._answers = {
            url: [answer] if isinstance(answer, Answer) else [*answer]
            for url, answer in http.items()
        }
        self._results = {
            endpoint: [*result] if isinstance(result, list) else [result]
            for endpoint, result in endpoints.items()
        }
        self._emitted_bytes = 0
        self.chunks: list[Chunk] = []
        """The chunks that were emitted, as a client would read them."""
        self.progress_values: list[Any] = []
        """The values that the job's status showed."""
        self.logs: list[tuple[Level, str]] = []
        """The lines of the job's log, without printed lines."""
        self.requests: list[Any] = []
        """The HTTP requests that were sent."""
        self.calls: list[Call] = []
        """The calls of other endpoints, by :meth:`submit` and :meth:`call`."""
        self.retired = False
        """Whether the handler asked the host to give its instance no further job."""
        self.retry_wish: float | Literal["never"] | None = None
        """What the handler wishes for its job if the attempt fails: the seconds of its last
        :meth:`retry_after`, ``"never"`` after :meth:`never_retry`, and ``None`` without a call."""
        super().__init__(job_id, _Host(self))

    @property
    def outputs(self) -> list[Any]:
        """The outputs of the chunks."""
        return [chunk.output for chunk in self.chunks]

    def run(self, handler: Callable[..., Any], input: Any) -> Any:
        """Runs a handler as the platform does, and returns its output. Raises
        :class:`gristmill.Error` when the job fails."""
        return json.loads(self.run_json(handler, json.dumps(input)))

    def run_json(self, handler: Callable[..., Any], input: str) -> str:
        """Runs a handler with JSON text as input and output. A function decorated with
        ``@gristmill.handler`` is called with ``(ctx, input)``, any other with the job."""
        return _handler.of(handler).handle(self, input)


class _Host:
    def __init__(self, test: TestContext) -> None:
        self._test = test

    def endpoint(self) -> str:
        return self._test._settings[0]

    def attempt(self) -> int:
        return self._test._settings[1]

    def remaining_ms(self) -> int:
        return int(self._test._settings[2] * 1000)

    def cancelled(self) -> bool:
        after = self._test._cancelled_after
        return after is not None and len(self._test.chunks) >= after

    def s3_config(self) -> S3Config | None:
        return self._test._s3_config

    def trace_parent(self) -> str | None:
        return self._test._trace_parent

    def retire(self) -> None:
        self._test.retired = True

    def retry_after(self, delay_ms: int | None) -> None:
        self._test.retry_wish = "never" if delay_ms is None else delay_ms / 1000

    def emit(self, output: str, metrics: str | None) -> None:
        test = self._test
        if test._emit_closed:
            raise EmitError("closed")
        if metrics is not None and not metrics.startswith("{"):
            raise EmitError("invalid-json", "metrics are not an object")
        size = len(output.encode()) + len((metrics or "").encode())
        if test._emit_quota is not None and test._emitted_bytes + size > test._emit_quota:
            raise EmitError("quota-exceeded", limit_bytes=test._emit_quota)
        test._emitted_bytes += size
        test.chunks.append(Chunk(json.loads(output), json.loads(metrics or "null")))

    def progress(self, value: str) -> None:
        self._test.progress_values.append(json.loads(value))

    def log(self, level: Level, message: str) -> None:
        self._test.logs.append((level, message))

    def http_send(self, request: http.Request) -> http.Response:
        self._test.requests.append(request)
        answers = self._test._answers.get(request.url)
        if not answers:
            raise http.Error("denied", f"{request.url}: the test has no answer for it")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, http.Error):
            raise answer
        return answer

    def _results_of(self, endpoint: str, input: str, key: str | None) -> list[Any]:
        self._test.calls.append(Call(endpoint, json.loads(input), key))
        if not (results := self._test._results.get(endpoint)):
            raise CallError("denied", f"endpoint `{endpoint}`: the test has no answer for it")
        return results

    def submit(self, endpoint: str, input: str, key: str | None) -> str:
        self._results_of(endpoint, input, key)
        return f"test-job-{len(self._test.calls)}"

    def call(self, endpoint: str, input: str, key: str | None) -> str:
        results = self._results_of(endpoint, input, key)
        result = results.pop(0) if len(results) > 1 else results[0]
        if isinstance(result, CallError):
            raise result
        return json.dumps(result)
