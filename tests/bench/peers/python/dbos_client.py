"""Starts DBOS workflows and waits for their results, which are in the database by then. The workflows run in
this process."""

import asyncio

from closed_loop import Clock, keep_busy
from dbos import DBOS

clock = Clock()
DBOS(
    config={
        "name": "peer",
        "system_database_url": clock.postgres,
        "run_admin_server": False,
        "log_level": "ERROR",
    }
)


@DBOS.workflow()
async def echo(value):
    return value


async def run(value):
    handle = await DBOS.start_workflow_async(echo, value)
    return await handle.get_result()


async def main():
    DBOS.launch()
    await keep_busy(clock, run)


asyncio.run(main())
clock.report()
DBOS.destroy()
