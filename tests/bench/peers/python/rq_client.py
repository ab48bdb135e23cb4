"""Submits to RQ and waits for each result on its Redis stream: a thread for each job in flight."""

import threading
import time

import redis
import rq
from closed_loop import Clock
from rq_jobs import echo

clock = Clock()
pool = redis.ConnectionPool(port=clock.redis, max_connections=2 * clock.in_flight)
queue = rq.Queue(connection=redis.Redis(connection_pool=pool))


def keep_busy():
    while not clock.is_over():
        begun = time.monotonic()
        job = queue.enqueue(echo, clock.input)
        result = job.latest_result(timeout=60)
        clock.done(begun, result.return_value)


threads = [threading.Thread(target=keep_busy) for _ in range(clock.in_flight)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
clock.report()
