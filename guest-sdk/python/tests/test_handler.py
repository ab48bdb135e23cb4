"""How functions become handlers: both styles, streams, conventions, and every way to fail."""

import asyncio
import unittest
from dataclasses import dataclass, field
from typing import Any

import gristmill
from gristmill import Cancelled, Chunk, Context, Failed, InvalidInput, RawJson, S3Config
from gristmill._handler import for_job, texts_of
from gristmill.testing import TestContext


@dataclass
class Item:
    count: int


@dataclass
class Order:
    items: list[Item]
    note: str = "none"


@dataclass
class Total:
    total: int
    notes: list[str] = field(default_factory=list)


@gristmill.handler
def total(ctx: Context, order: Order) -> Total:
    return Total(sum(item.count for item in order.items), [order.note])


class Typed(unittest.TestCase):
    def test_dataclasses_come_and_go_as_json(self) -> None:
        output = TestContext().run_json(total, '{"items":[{"count":2},{"count":3}],"more":1}')
        self.assertEqual(output, '{"total":5,"notes":["none"]}')

    def test_a_mistake_is_reported_with_its_path(self) -> None:
        with self.assertRaises(InvalidInput) as caught:
            TestContext().run(total, {"items": [{"count": 2}, {"count": "x"}]})
        self.assertEqual(caught.exception.message, "items[1].count: expected int, got str")

    def test_raw_json_is_not_touched(self) -> None:
        @gristmill.handler
        def untouched(ctx: Context, input: RawJson) -> RawJson:
            return input

        text = ' {"z": 9007199254740993, "a": 1.50} '
        self.assertEqual(TestContext().run_json(untouched, text), text)

    def test_a_handler_takes_two_parameters(self) -> None:
        with self.assertRaisesRegex(TypeError, r"a handler is f\(ctx, input\)"):
            gristmill.handler(lambda input: input)


class ForJob(unittest.TestCase):
    def test_the_job_has_its_id_and_input(self) -> None:
        ctx = TestContext(job_id="j-1")
        self.assertEqual(
            ctx.run(lambda job: job, {"n": 2**64}), {"id": "j-1", "input": {"n": 2**64}}
        )

    def test_the_job_has_its_s3_config_as_submitted(self) -> None:
        ctx = TestContext(s3_config=S3Config(access_id="me", bucket_name="b"))
        job = ctx.run(lambda job: job, 1)
        self.assertEqual(job["s3Config"]["accessId"], "me")
        self.assertEqual(job["s3Config"]["bucketName"], "b")

    def test_a_second_parameter_is_the_context(self) -> None:
        self.assertEqual(TestContext(attempt=3).run(lambda job, ctx: ctx.attempt, 1), 3)

    def test_a_context_by_name_may_have_a_default_or_be_a_keyword(self) -> None:
        def with_default(job, ctx=None):
            return ctx.attempt

        def with_keyword(job, *, context):
            return context.attempt

        def of_position(job, running, /):
            return running.attempt

        for work in [with_default, with_keyword, of_position]:
            self.assertEqual(TestContext(attempt=3).run(work, 1), 3, work.__name__)

    def test_any_other_second_parameter_keeps_its_default(self) -> None:
        def with_default(job, retries=3):
            return retries

        def with_keyword(job, *, debug=False):
            return debug

        def with_any(job, *more, **options):
            return [more, options]

        def with_options(job, **ctx):
            return ctx

        for work, value in [
            (with_default, 3),
            (with_keyword, False),
            (with_any, [[], {}]),
            (with_options, {}),
        ]:
            self.assertEqual(TestContext().run(work, 1), value, work.__name__)

    def test_an_integer_beyond_the_limit_of_python_refuses_the_input(self) -> None:
        ctx = TestContext()
        digits = "7" * 4300
        self.assertEqual(ctx.run_json(lambda job: job["input"], digits), digits)
        with self.assertRaises(InvalidInput) as caught:
            ctx.run_json(lambda job: 1, f'{{"n":{digits}7}}')
        self.assertEqual(
            caught.exception.message, "input has an integer of more than 4300 digits"
        )
        self.assertEqual(ctx.logs, [])

    def test_an_error_in_the_output_fails_the_job(self) -> None:
        for error, message in [("no flour", "no flour"), ({"code": 7}, '{"code":7}')]:
            with self.assertRaises(Failed) as caught:
                TestContext().run(lambda job: {"error": error}, 1)
            self.assertEqual(caught.exception.message, message)
        self.assertEqual(TestContext().run(lambda job: {"error": None}, 1), {"error": None})

    def test_a_call_of_openai_is_refused_by_an_error_object(self) -> None:
        call = {"openai_route": "/v1/chat/completions", "openai_input": {"model": "gpt-4"}}
        refusal = {"error": {"message": "no model gpt-4", "code": 400}}
        self.assertEqual(TestContext().run(lambda job: refusal, call), refusal)

        def stream(job):
            yield refusal

        ctx = TestContext()
        ctx.run(stream, call)
        self.assertEqual([chunk.output for chunk in ctx.chunks], [refusal])
        for error in ["no flour", ValueError("no flour")]:
            with self.assertRaisesRegex(Failed, "no flour"):
                TestContext().run(lambda job: {"error": error}, call)
        for other in [1, {"openai_input": {}}, ["openai_route"], "openai_route"]:
            with self.assertRaises(Failed):
                TestContext().run(lambda job: refusal, other)

    def test_an_exception_in_the_output_fails_the_job_as_if_it_was_raised(self) -> None:
        ctx = TestContext()
        with self.assertRaises(Failed) as caught:
            ctx.run(lambda job: {"error": ValueError("no flour")}, 1)
        self.assertEqual(caught.exception.message, "ValueError: no flour")
        self.assertEqual(ctx.logs, [("error", "ValueError: no flour\n")])
        with self.assertRaises(InvalidInput) as refused:
            TestContext().run(lambda job: {"error": InvalidInput("no rye", {"sacks": 0})}, 1)
        self.assertEqual(refused.exception.details, {"sacks": 0})
        # A value without a JSON form has a text.
        with self.assertRaisesRegex(Failed, "^b'no oats'$"):
            TestContext().run(lambda job: {"error": b"no oats"}, 1)

    def test_what_stands_beside_an_error_is_handed_out(self) -> None:
        for returned in [{"error": "no", "x": 1}, {"x": 1, "refresh_worker": True, "error": "no"}]:
            ctx = TestContext()
            with self.assertRaises(Failed):
                ctx.run(lambda job: returned, 1)
            self.assertEqual(ctx.progress_values, [{"x": 1}])
        ctx = TestContext()
        with self.assertRaises(Failed):
            ctx.run(lambda job: {"error": "no"}, 1)
        self.assertEqual(ctx.progress_values, [])

    def test_refresh_worker_leaves_the_output(self) -> None:
        ctx = TestContext()
        self.assertEqual(ctx.run(lambda job: {"refresh_worker": True, "x": 1}, 1), {"x": 1})
        self.assertTrue(ctx.retired)

    def test_progress_update_finds_the_job(self) -> None:
        ctx = TestContext()
        ctx.run(lambda job: gristmill.serverless.progress_update(job, "halfway"), 1)
        self.assertEqual(ctx.progress_values, ["halfway"])


class Streams(unittest.TestCase):
    def test_each_yield_is_a_chunk(self) -> None:
        def countdown(job, ctx):
            yield 2
            yield Chunk(1, {"n": 1})
            return "done"

        ctx = TestContext()
        self.assertEqual(ctx.run(countdown, 1), "done")
        self.assertEqual(ctx.chunks, [Chunk(2), Chunk(1, {"n": 1})])

    def test_without_a_return_the_host_aggregates_unless_told_otherwise(self) -> None:
        def one(job):
            yield 1

        self.assertEqual(TestContext().run_json(one, "1"), "null")
        self.assertEqual(for_job(one, aggregate=False).handle(TestContext(), "1"), "[]")

    def test_an_async_generator_streams_too(self) -> None:
        async def two(job):
            for i in range(2):
                await asyncio.sleep(0.001)
                yield i

        ctx = TestContext()
        ctx.run(two, 1)
        self.assertEqual(ctx.outputs, [0, 1])

    def test_a_yielded_error_ends_the_job_after_the_chunks_before_it(self) -> None:
        def broken(job):
            yield 1
            yield {"error": "no flour"}
            yield 2

        ctx = TestContext()
        with self.assertRaisesRegex(Failed, "no flour"):
            ctx.run(broken, 1)
        self.assertEqual(ctx.outputs, [1])

    def test_a_cancelled_job_ends_at_its_next_yield(self) -> None:
        tidied = []

        def endless(job):
            try:
                while True:
                    yield 1
            finally:
                tidied.append(True)

        ctx = TestContext(cancelled_after=2)
        with self.assertRaises(Cancelled):
            ctx.run(endless, 1)
        self.assertEqual((ctx.outputs, tidied), ([1, 1], [True]))


class Async(unittest.TestCase):
    def test_tasks_run_together(self) -> None:
        async def gather(job):
            async def later(value):
                await asyncio.sleep(0.001 * value)
                return value

            return await asyncio.gather(later(3), later(1))

        self.assertEqual(TestContext().run(gather, 1), [3, 1])

    def test_a_timeout_holds(self) -> None:
        async def slow(job):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)

        with self.assertRaisesRegex(Failed, "^TimeoutError$"):
            TestContext().run(slow, 1)

    def test_waiting_for_nothing_fails(self) -> None:
        async def stuck(job):
            await asyncio.Event().wait()

        with self.assertRaisesRegex(Failed, "nothing will wake"):
            TestContext().run(stuck, 1)


class Mute(Exception):
    """An exception without a text."""

    def __str__(self) -> str:
        raise TypeError("no text")


@dataclass(frozen=True)
class Frozen(Exception):
    sacks: int


class Sealed:
    """A value whose JSON form cannot be computed."""

    def model_dump(self, mode: str) -> Any:
        raise KeyError("sacks")


class Failures(unittest.TestCase):
    def failure(self, work: Any) -> tuple[str, str]:
        """The error of a job, and what its log has."""
        ctx = TestContext()
        with self.assertRaises(Failed) as caught:
            ctx.run(work, 1)
        return caught.exception.message, "".join(lines for _, lines in ctx.logs)

    def test_an_exception_without_a_text_is_named(self) -> None:
        def broken(job: Any) -> None:
            raise Mute

        message, lines = self.failure(broken)
        expected = "Mute: its text cannot be shown, because `__str__` raises TypeError"
        self.assertEqual(message, expected)
        self.assertIn("in broken", lines)

    def test_an_exception_that_cannot_be_changed_is_shown(self) -> None:
        def broken(job: Any) -> None:
            raise Frozen(2)

        message, lines = self.failure(broken)
        self.assertEqual(message, "Frozen: 2")
        self.assertIn("in broken", lines)

    def test_an_exception_with_a_broken_attribute_is_named(self) -> None:
        class Nameless(ImportError):
            @property
            def name(self) -> str:  # type: ignore[override]
                raise LookupError

        def broken(job: Any) -> None:
            raise Nameless

        self.assertEqual(self.failure(broken)[0], "Nameless cannot be shown: LookupError")

    def test_code_with_globals_of_its_own_may_fail(self) -> None:
        message, _ = self.failure(lambda job: exec("1 / 0", {"__name__": None}))
        self.assertEqual(message, "ZeroDivisionError: division by zero")

    def test_an_output_whose_json_form_fails_is_refused_with_the_reason(self) -> None:
        message, lines = self.failure(lambda job: Sealed())
        self.assertEqual(message, "output has no JSON form: KeyError: 'sacks'")
        self.assertIn("in model_dump", lines)

    def test_details_whose_json_form_fails_leave_the_message(self) -> None:
        self.assertEqual(
            texts_of(Failed("no flour", Sealed())),
            ("no flour", "\"details have no JSON form: 'sacks'\""),
        )
        message, details = texts_of(Failed(Mute()))  # type: ignore[arg-type]
        self.assertIn("its text cannot be shown", message)
        self.assertIsNone(details)

    def test_an_error_of_a_class_with_its_own_init_has_a_message(self) -> None:
        class Empty(Failed):
            def __init__(self, *what: str) -> None: ...

        self.assertEqual(texts_of(Empty("no flour")), ("no flour", None))

    def test_the_error_of_a_group_of_tasks_is_the_error_of_its_only_task(self) -> None:
        async def grind(job: Any) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(refuse())

        async def refuse() -> None:
            raise InvalidInput("no flour", {"sacks": 0})

        with self.assertRaises(InvalidInput) as caught:
            TestContext().run(grind, 1)
        self.assertEqual(caught.exception.details, {"sacks": 0})

    def test_an_exception_becomes_the_error_and_its_traceback_is_logged(self) -> None:
        ctx = TestContext()
        with self.assertRaises(Failed) as caught:
            ctx.run(lambda job: {}["flour"], 1)
        self.assertEqual(caught.exception.message, "KeyError: 'flour'")
        [(level, lines)] = ctx.logs
        self.assertEqual(level, "error")
        self.assertIn("test_handler.py", lines)
        self.assertNotIn('_handler.py"', lines.replace("test_handler.py", ""))

    def test_exit_is_a_failure(self) -> None:
        with self.assertRaisesRegex(Failed, "SystemExit: 2"):
            TestContext().run(lambda job: exit(2), 1)

    def test_what_is_not_json_is_refused(self) -> None:
        for output, why in [
            (float("nan"), "Out of range float values are not JSON compliant"),
            (b"x", "a bytes is not JSON"),
        ]:
            with self.subTest(output=output):
                with self.assertRaisesRegex(Failed, f"output has no JSON form: {why}"):
                    TestContext().run(lambda job: output, 1)

    def test_init_says_why(self) -> None:
        @gristmill.init
        def broken() -> None:
            raise OSError("no model")

        with self.assertRaisesRegex(Failed, "OSError: no model"):
            gristmill._handler.run_init()


if __name__ == "__main__":
    unittest.main()
