"""Fixtures of all Python tests. `run.sh` starts the host and sets the environment."""

import os
import time

import pytest
import runpod

KEY = os.environ["RUNPOD_API_KEY"]
FINAL = {"COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"}
PAUSED = "paused-python"


@pytest.fixture
def endpoint():
    """Makes the SDK's Endpoint of a name."""
    return lambda name: runpod.Endpoint(name, api_key=KEY)


def document(job):
    """The whole status document; the SDK's methods return only parts of it."""
    return job.rp_client.get(f"{job.endpoint_id}/status/{job.job_id}")


def wait_until(condition, seconds=30):
    """Waits for something that must come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
