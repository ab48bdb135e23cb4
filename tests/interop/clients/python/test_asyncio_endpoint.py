"""`runpod.AsyncioEndpoint`: the SDK's asyncio client."""

import asyncio

import aiohttp
import pytest
from conftest import KEY, PAUSED
from runpod import AsyncioEndpoint


def asynchronous(test):
    """Runs a test in an event loop, and passes it a function that creates the SDK's endpoints."""

    async def body():
        async with aiohttp.ClientSession() as session:
            await test(lambda name: AsyncioEndpoint(name, session, api_key=KEY))

    def run():
        asyncio.run(body())

    return run


async def reaches(job, status):
    """Waits for a status that must come."""
    for _ in range(300):
        if await job.status() == status:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"the job did not become {status}")


async def streamed(job):
    return [chunk async for chunk in job.stream()]


@asynchronous
async def test_run_status_output(endpoint):
    value = {"text": "Mühle 磨", "big": 9007199254740993, "nested": [{"a": None}, 1.5, True]}
    job = await endpoint("echo").run(value)
    assert await job.output(timeout=30) == value
    assert await job.status() == "COMPLETED"


@asynchronous
async def test_output_of_many_jobs_at_once(endpoint):
    playground = endpoint("playground")

    async def call(n):
        job = await playground.run({"op": "sleep", "ms": 200, "value": n})
        return await job.output(timeout=90)

    outputs = await asyncio.gather(*(call(n) for n in range(40)))
    assert outputs == [{"slept": 200, "echo": n} for n in range(40)]


@asynchronous
async def test_failed_job(endpoint):
    job = await endpoint("playground").run({"op": "fail", "message": "no more flour"})
    assert await job.output(timeout=30) is None
    assert await job.status() == "FAILED"


@asynchronous
async def test_output_gives_up_and_cancel_stops_a_spinning_job(endpoint):
    job = await endpoint("playground").run({"op": "spin"})
    await reaches(job, "IN_PROGRESS")
    with pytest.raises(TimeoutError):
        await job.output(timeout=2)
    assert await job.cancel() == {"id": job.job_id, "status": "CANCELLED"}
    assert await job.status() == "CANCELLED"


@asynchronous
async def test_cancel_of_a_queued_job(endpoint):
    job = await endpoint(PAUSED).run({"n": 1})
    assert await job.status() == "IN_QUEUE"
    assert (await job.cancel())["status"] == "CANCELLED"
    assert await job.status() == "CANCELLED"


@asynchronous
async def test_stream_while_the_job_runs(endpoint):
    job = await endpoint("playground").run({"op": "stream", "count": 25, "delay_ms": 150})
    chunks = [{"i": i} for i in range(25)]
    assert await streamed(job) == chunks
    assert await job.status() == "COMPLETED"
    assert await job.output(timeout=5) == chunks


@asynchronous
async def test_streams_side_by_side(endpoint):
    prompts = ["the miller's daughter", "wind; water, steam", "one two three four five"]
    jobs = [await endpoint("token-stream").run({"prompt": p, "delay_ms": 500}) for p in prompts]
    streams = await asyncio.gather(*map(streamed, jobs))
    assert ["".join(tokens) for tokens in streams] == prompts


@asynchronous
async def test_stream_without_chunks_ends(endpoint):
    assert await streamed(await endpoint("playground").run({"op": "echo"})) == []


@asynchronous
async def test_health_and_purge_queue(endpoint):
    paused = endpoint(PAUSED)
    jobs = [await paused.run({"n": n}) for n in range(4)]
    assert (await paused.health())["jobs"]["inQueue"] == 4
    assert await paused.purge_queue() == {"removed": 4, "status": "completed"}
    assert (await paused.health())["jobs"]["inQueue"] == 0
    with pytest.raises(KeyError):  # how this client shows every error
        await jobs[0].status()


@asynchronous
async def test_unknown_endpoint(endpoint):
    with pytest.raises(KeyError):
        await endpoint("nowhere").run({"n": 1})
