"""`runpod.Endpoint`: the SDK's blocking client."""

import time

import pytest
import requests
import runpod
from conftest import PAUSED, document, wait_until


def test_run_status_output(endpoint):
    value = {"text": "Mühle 磨", "big": 9007199254740993, "nested": [{"a": None}, 1.5, True]}
    job = endpoint("echo").run({"input": value})
    assert job.output(timeout=30) == value
    assert job.status() == "COMPLETED"


def test_run_wraps_a_bare_input(endpoint):
    assert endpoint("echo").run({"grain": "rye"}).output(timeout=30) == {"grain": "rye"}


def test_output_waits_for_a_slow_job(endpoint):
    job = endpoint("playground").run({"op": "sleep", "ms": 3000, "value": "late"})
    assert job.status() in ("IN_QUEUE", "IN_PROGRESS")
    assert job.output(timeout=60) == {"slept": 3000, "echo": "late"}
    assert job.status() == "COMPLETED"


def test_output_of_many_jobs(endpoint):
    playground = endpoint("playground")
    jobs = [playground.run({"op": "echo", "value": n}) for n in range(40)]
    assert [job.output(timeout=60) for job in jobs] == [{"echo": n} for n in range(40)]


def test_run_sync(endpoint):
    output = endpoint("playground").run_sync({"input": {"op": "sleep", "ms": 1500, "value": [1, 2]}})
    assert output == {"slept": 1500, "echo": [1, 2]}


def test_run_sync_of_a_failing_job(endpoint):
    assert endpoint("playground").run_sync({"op": "fail", "message": "no flour"}) is None


@pytest.mark.parametrize(
    ("request_input", "error"),
    [
        ({"op": "fail", "message": "no more flour"}, "no more flour"),
        ({"op": "trap"}, "unreachable"),
        ({"op": "exit", "code": 3}, "exit"),
    ],
    ids=["fail", "trap", "exit"],
)
def test_failed_job(endpoint, request_input, error):
    job = endpoint("playground").run(request_input)
    wait_until(lambda: job.status() == "FAILED")
    assert job.output() is None
    assert error in document(job)["error"]


def test_execution_timeout(endpoint):
    job = endpoint("playground").run(
        {"input": {"op": "spin"}, "policy": {"executionTimeout": 5000}}
    )
    assert job.output(timeout=60) is None
    assert job.status() == "TIMED_OUT"
    assert document(job)["error"] == "executionTimeout exceeded"
    assert document(job)["executionTime"] >= 5000


def test_ttl_deletes_a_waiting_job(endpoint):
    job = endpoint(PAUSED).run({"input": {"n": 1}, "policy": {"ttl": 10000}})
    assert job.status() == "IN_QUEUE"
    with pytest.raises(requests.HTTPError) as gone:
        job.output(timeout=40)
    assert gone.value.response.status_code == 404


def test_output_gives_up_and_cancel_stops_a_spinning_job(endpoint):
    job = endpoint("playground").run({"op": "spin"})
    wait_until(lambda: job.status() == "IN_PROGRESS")
    with pytest.raises(TimeoutError):
        job.output(timeout=2)
    assert job.cancel() == {"id": job.job_id, "status": "CANCELLED"}
    assert job.status() == "CANCELLED"
    assert job.output() is None


def test_cancel_of_a_queued_job(endpoint):
    job = endpoint(PAUSED).run({"n": 1})
    assert job.status() == "IN_QUEUE"
    assert job.cancel()["status"] == "CANCELLED"
    assert job.status() == "CANCELLED"


def test_cancel_of_a_finished_job_tells_how_it_ended(endpoint):
    job = endpoint("echo").run({"n": 1})
    assert job.output(timeout=30) == {"n": 1}
    assert job.cancel()["status"] == "COMPLETED"


def test_progress(endpoint):
    job = endpoint("playground").run({"op": "progress", "steps": 3, "delay_ms": 2000})
    seen = []
    while (state := document(job))["status"] in ("IN_QUEUE", "IN_PROGRESS"):
        if "output" in state and state["output"] not in seen:
            seen.append(state["output"])
        time.sleep(0.2)
    assert seen and seen == sorted(seen, key=lambda value: value["progress"])
    assert job.output() == {"done": 3}


def test_stream_while_the_job_runs(endpoint):
    job = endpoint("playground").run({"op": "stream", "count": 25, "delay_ms": 150})
    chunks = [{"i": i} for i in range(25)]
    assert list(job.stream()) == chunks
    assert job.status() == "COMPLETED"
    assert job.output() == chunks


def test_stream_after_the_end(endpoint):
    prompt = "Slow mills grind fine; fast ones, too."
    job = endpoint("token-stream").run({"prompt": prompt})
    tokens = job.output(timeout=30)
    assert "".join(tokens) == prompt
    assert list(job.stream()) == tokens
    assert list(job.stream()) == []


def test_stream_with_long_pauses(endpoint):
    """The job takes longer than a call to /stream waits, so some of the answers are empty."""
    job = endpoint("token-stream").run({"prompt": "two tokens", "delay_ms": 5000})
    assert list(job.stream()) == ["two", " tokens"]


@pytest.mark.parametrize("request_input", [{"op": "echo"}, {"op": "fail", "message": "no"}])
def test_stream_without_chunks_ends(endpoint, request_input):
    assert list(endpoint("playground").run(request_input).stream()) == []


def test_health(endpoint):
    playground = endpoint("playground")
    before = playground.health()
    playground.run_sync({"op": "echo"})
    playground.run_sync({"op": "fail", "message": "counted"})
    after = playground.health()
    assert after["jobs"]["completed"] == before["jobs"]["completed"] + 1
    assert after["jobs"]["failed"] == before["jobs"]["failed"] + 1
    workers = {"idle", "initializing", "ready", "running", "throttled", "unhealthy"}
    assert workers == set(after["workers"])


def test_purge_queue(endpoint):
    paused = endpoint(PAUSED)
    jobs = [paused.run({"n": n}) for n in range(5)]
    assert paused.health()["jobs"]["inQueue"] == 5
    assert paused.purge_queue() == {"removed": 5, "status": "completed"}
    assert paused.health()["jobs"]["inQueue"] == 0
    with pytest.raises(requests.HTTPError) as gone:
        jobs[0].status()
    assert gone.value.response.status_code == 404


def test_unknown_endpoint_and_job(endpoint):
    job = endpoint("echo").run({"n": 1})
    job.job_id = "nobody"
    for call in (lambda: endpoint("nowhere").run({"n": 1}), job.status, job.cancel):
        with pytest.raises(requests.HTTPError) as refused:
            call()
        assert refused.value.response.status_code == 404


def test_wrong_key():
    with pytest.raises(RuntimeError, match="401"):
        runpod.Endpoint("echo", api_key="wrong").run({"n": 1})
