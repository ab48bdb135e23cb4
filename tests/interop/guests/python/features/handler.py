"""A handler for the hosted services with one changed import, and the other features of the SDK, one
`op` for each."""

import asyncio
import datetime
import logging
import os
import random
import sys

import gristmill as runpod
from gristmill import CallError, EmitError, Failed, InvalidInput, context, http

starts = 0
jobs = 0


@runpod.init
def start():
    global starts
    starts += 1


def count():
    """How often this instance was started, and which job of it this is."""
    global jobs
    jobs += 1
    return [starts, jobs]


async def later(value):
    await asyncio.sleep(0.01 * value)
    return value


def wait_for_two():
    async def both():
        return await asyncio.gather(later(2), later(1))

    return asyncio.run(both())


def refused_by_http():
    try:
        http.get("https://example.com/")
    except http.Error as error:
        return error.kind


def refused_by_emit():
    try:
        context().emit(1, [])
    except EmitError as error:
        return error.kind


def call(job):
    """The output of another endpoint, or why there is none."""
    job_input = job["input"]
    try:
        return context().call(
            job_input["endpoint"], job_input["value"], idempotency_key=job_input.get("key")
        )
    except CallError as error:
        return [error.kind, error.job and error.job.status, str(error)]


def submit(job):
    return context().submit(job["input"]["endpoint"], job["input"]["value"])


def write_to_log():
    print("printed")
    print("complained", file=sys.stderr)
    for level in ["trace", "debug", "info", "warn", "error"]:
        context().log(level, f"at {level}")
    context().info("lone \ud800")
    logging.getLogger("mill").warning("%d sacks", "two")
    logging.getLogger("mill").warning("through logging")


def fail(error):
    raise error


def retry_after():
    """The first attempt fails, and the next one returns its number."""
    ctx = context()
    if ctx.attempt > 1:
        return ctx.attempt
    ctx.never_retry()
    ctx.retry_after(0.01)
    raise Failed("the wheel is stuck")


def never_retry():
    ctx = context()
    ctx.retry_after(0.01)
    ctx.never_retry()
    raise Failed(f"the wheel is stuck in attempt {ctx.attempt}")


def nested(depth):
    return [nested(depth - 1)] if depth else []


OPS = {
    "facts": lambda job: [
        job["id"] == context().job_id,
        context().endpoint,
        context().attempt,
        context().remaining > 1,
        context().cancelled,
    ],
    "count": lambda job: count(),
    "echo": lambda job: job["input"]["value"],
    "s3": lambda job: job["s3Config"]["bucketName"],
    "env": lambda job: os.environ["MILL"],
    "runpod-environment": lambda job: os.environ["RUNPOD_ENDPOINT_ID"],
    "log": lambda job: write_to_log(),
    "call": call,
    "submit": submit,
    "async": lambda job: wait_for_two(),
    "http": lambda job: refused_by_http(),
    "emit": lambda job: refused_by_emit(),
    "random": lambda job: random.random(),
    "year": lambda job: datetime.datetime.strptime("2026", "%Y").year,
    "invalid": lambda job: fail(InvalidInput("no flour", {"sacks": 0})),
    "failed": lambda job: fail(Failed("the wheel is stuck")),
    "raise": lambda job: {}["flour"],
    "retry-after": lambda job: retry_after(),
    "never-retry": lambda job: never_retry(),
    "nan": lambda job: float("nan"),
    "surrogate": lambda job: "\udc00",
    "error": lambda job: {"error": {"code": 7}, "rest": 1},
    "refresh": lambda job: {"refresh_worker": True, "ground": count()},
    "exit": lambda job: sys.exit(2),
    "deep": lambda job: nested(200),
    "lazy": lambda job: __import__("sqlglot"),
}


def handler(job):
    op = job["input"]["op"]
    if op == "stream":
        runpod.serverless.progress_update(job, {"percent": 50})
        yield {"grain": 1}
        yield runpod.Chunk("flour", {"sacks": 2})
        return
    if op == "broken-stream":
        yield 1
        raise OSError("no water")
    return OPS[op](job)


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler, "return_aggregate_stream": True})
