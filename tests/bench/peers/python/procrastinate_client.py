"""Submits to procrastinate and runs its worker on the same event loop. The library keeps no results, so the
task gives its result to the client, before the worker marks the job as done."""

import asyncio
import itertools

import procrastinate
from closed_loop import Clock, keep_busy

clock = Clock()
connector = procrastinate.PsycopgConnector(conninfo=clock.postgres, max_size=20)
app = procrastinate.App(connector=connector)
numbers, waiting = itertools.count(), {}


@app.task(queue="echo")
async def echo(number, value):
    waiting.pop(number).set_result(value)


async def run(value):
    number = next(numbers)
    result = waiting[number] = asyncio.get_running_loop().create_future()
    await echo.defer_async(number=number, value=value)
    return await asyncio.wait_for(result, 60)


async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(
            app.run_worker_async(concurrency=clock.in_flight, install_signal_handlers=False)
        )
        await keep_busy(clock, run)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


asyncio.run(main())
clock.report()
