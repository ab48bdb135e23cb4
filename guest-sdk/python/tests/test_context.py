"""The context and its fake host: chunks, progress, log, HTTP."""

import math
import unittest

from gristmill import CallError, Cancelled, EmitError, Failed, FailedJob, S3Config, context, http
from gristmill.testing import Call, TestContext

URL = "https://example.com/"


class Emit(unittest.TestCase):
    def test_metrics_must_be_an_object(self) -> None:
        ctx = TestContext()
        with self.assertRaises(EmitError) as caught:
            ctx.emit("x", 1)  # type: ignore[arg-type]
        self.assertEqual(caught.exception.kind, "invalid-json")
        self.assertEqual(ctx.chunks, [])

    def test_the_quota_counts_chunks_and_metrics(self) -> None:
        ctx = TestContext(emit_quota=10)
        ctx.emit(1, {"n": 2})
        with self.assertRaises(EmitError) as caught:
            ctx.emit(34567)
        self.assertEqual(
            (caught.exception.kind, caught.exception.limit_bytes), ("quota-exceeded", 10)
        )

    def test_a_closed_stream_says_so(self) -> None:
        with self.assertRaisesRegex(EmitError, "the attempt is over"):
            TestContext(emit_closed=True).emit(1)


class Facts(unittest.TestCase):
    def test_what_was_told(self) -> None:
        ctx = TestContext(job_id="j", endpoint="e", attempt=2, remaining=1.5)
        self.assertEqual((ctx.job_id, ctx.endpoint, ctx.attempt, ctx.remaining), ("j", "e", 2, 1.5))
        self.assertIsNone(ctx.s3_config)

    def test_cancelled(self) -> None:
        TestContext().check_cancelled()
        with self.assertRaises(Cancelled):
            TestContext(cancelled=True).check_cancelled()

    def test_the_last_wish_counts(self) -> None:
        ctx = TestContext()
        self.assertIsNone(ctx.retry_wish)
        for seconds, wish in [
            (30, 30),
            (1.1, 1.1),
            (0.0004, 0),
            (-1, 0),
            (math.inf, (2**32 - 1) / 1000),
        ]:
            ctx.retry_after(seconds)
            self.assertEqual(ctx.retry_wish, wish)
        ctx.never_retry()
        self.assertEqual(ctx.retry_wish, "never")
        with self.assertRaises(ValueError):
            ctx.retry_after(math.nan)
        self.assertEqual(ctx.retry_wish, "never")

    def test_the_secret_is_hidden(self) -> None:
        self.assertNotIn("hunter2", repr(S3Config(access_secret="hunter2")))

    def test_no_job_runs_here(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "no job is running"):
            context()


class Log(unittest.TestCase):
    def test_each_level_has_its_method(self) -> None:
        ctx = TestContext()
        for level in ["trace", "debug", "info", "warn", "error"]:
            getattr(ctx, level)(level)
        self.assertEqual([level for level, _ in ctx.logs], [line for _, line in ctx.logs])

    def test_progress_without_a_json_form_is_logged_and_dropped(self) -> None:
        ctx = TestContext()
        ctx.progress(object())
        self.assertEqual(ctx.progress_values, [])
        self.assertEqual(
            ctx.logs, [("warn", "progress value has no JSON form: a object is not JSON")]
        )


class Http(unittest.TestCase):
    def test_answers_come_in_their_order_and_the_last_repeats(self) -> None:
        answers = [http.Error("timeout"), http.Response(404, [("Age", "1")], b'{"a":"\xc3\xa9"}')]
        ctx = TestContext(http={URL: answers})

        def fetch(job):
            try:
                http.get(URL)
            except http.Error as error:
                assert error.kind == "timeout"
            response = http.post(URL, json={"q": 1}, headers={"x": "y"}, timeout=2)
            return [response.status, response.header("age"), response.text, response.json()]

        self.assertEqual(ctx.run(fetch, 1), [404, "1", '{"a":"é"}', {"a": "é"}])
        sent = ctx.requests[1]
        self.assertEqual((sent.method, sent.body, sent.timeout), ("POST", b'{"q": 1}', 2))
        self.assertEqual(sent.headers, [("x", "y"), ("content-type", "application/json")])

    def test_a_content_type_of_the_handlers_own_is_the_only_one(self) -> None:
        ctx = TestContext(http={URL: http.Response(200)})
        own = {"Content-Type": "application/merge-patch+json"}
        ctx.run(lambda job: http.post(URL, json={}, headers=own).status, 1)
        self.assertEqual(ctx.requests[0].headers, [*own.items()])

    def test_an_unknown_url_is_denied(self) -> None:
        with self.assertRaises(http.Error) as caught:
            TestContext().http_send(http.Request("GET", URL))
        self.assertEqual(caught.exception.kind, "denied")


class Endpoints(unittest.TestCase):
    def test_results_come_in_their_order_and_the_last_repeats(self) -> None:
        job = FailedJob("call1-a", "FAILED", "no flour")
        ctx = TestContext(endpoints={"count": [CallError("failed", job=job), {"words": 6}]})

        def words(job):
            ctx = context()
            try:
                ctx.call("count", {"text": "rye"})
            except CallError as error:
                assert (error.kind, error.job and error.job.error) == ("failed", "no flour")
                assert str(error) == "job `call1-a` is FAILED: no flour"
            id = ctx.submit("count", {"text": "oat"}, idempotency_key="k")
            return [id, ctx.call("count", {}), ctx.call("count", {})]

        self.assertEqual(ctx.run(words, 1), ["test-job-2", {"words": 6}, {"words": 6}])
        self.assertEqual(ctx.calls[1], Call("count", {"text": "oat"}, "k"))

    def test_an_unknown_endpoint_is_denied_with_the_job_error(self) -> None:
        ctx = TestContext()
        with self.assertRaisesRegex(Failed, "^endpoint `count`: the test has no answer for it$"):
            ctx.run(lambda job: context().submit("count", {}), 1)
        with self.assertRaises(CallError) as caught:
            ctx.call("count", {"x": object()})
        self.assertEqual(caught.exception.kind, "invalid-request")


if __name__ == "__main__":
    unittest.main()
