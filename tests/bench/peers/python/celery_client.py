"""Submits to Celery and takes each result when it is published, all on one thread: the next job is
submitted in the callback of the one before."""

import os
import time

from closed_loop import Clock

clock = Clock()
os.environ["PEER_REDIS_PORT"] = str(clock.redis)

from celery_jobs import app, echo  # noqa: E402  the port comes first

begun_at = {}


def submit():
    begun = time.monotonic()
    result = echo.delay(clock.input)
    begun_at[result.id] = (begun, result)
    result.then(done)


def done(result):
    begun, _ = begun_at.pop(result.id)
    clock.done(begun, result.result)
    if not clock.is_over():
        submit()


for _ in range(clock.in_flight):
    submit()
deadline = clock.end + 60
while begun_at:
    if time.monotonic() > deadline:
        raise SystemExit(f"{len(begun_at)} results are missing")
    app.backend.result_consumer.drain_events(timeout=1)
clock.report()
