"""Sends messages with pgmq and reads them on the same event loop. A message has no result, so the reader gives it
to the client once the message is archived."""

import asyncio
import itertools

import asyncpg
from closed_loop import Clock, keep_busy
from pgmq import AsyncPGMQueue
from pgmq.install import get_embedded_install_sql, install_pgmq_sql

QUEUE = "echo"

clock = Clock()
# The extension as plain SQL, which needs no file on the server.
install_pgmq_sql(get_embedded_install_sql(), dsn=clock.postgres)
numbers, waiting = itertools.count(), {}


async def read(queue):
    """Reads messages until it is cancelled. The longest time between two looks is that of `poll_interval_ms`."""
    while True:
        messages = await queue.read_with_poll(
            QUEUE, vt=60, qty=clock.in_flight, max_poll_seconds=5, poll_interval_ms=2
        )
        if messages:
            await queue.archive_batch(QUEUE, [message.msg_id for message in messages])
        for message in messages or []:
            waiting.pop(message.message["number"]).set_result(message.message["value"])


async def main():
    pool = await asyncpg.create_pool(clock.postgres, max_size=20)
    queue = AsyncPGMQueue(pool=pool, init_extension=False)
    await queue.init()
    await queue.create_queue(QUEUE)

    async def run(value):
        number = next(numbers)
        result = waiting[number] = asyncio.get_running_loop().create_future()
        await queue.send(QUEUE, {"number": number, "value": value})
        return await asyncio.wait_for(result, 60)

    reader = asyncio.create_task(read(queue))
    await keep_busy(clock, run)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    await pool.close()


asyncio.run(main())
clock.report()
