"""Refusals that the host sends before it has read the body: aiohttp, urllib and curl read each of them, and
the next call of the same client succeeds."""

import asyncio
import json
import os
import subprocess
import urllib.error
import urllib.request

import aiohttp
import pytest
from conftest import KEY

URL = os.environ["GRISTMILL_URL"]
VALID = f"Bearer {KEY}"
MANAGE = f"Bearer {os.environ['GRISTMILL_MANAGE_KEY']}"

# Method, path, key, status.
EARLY = [
    ("POST", "/v2/none/run", VALID, 404),
    ("POST", "/v2/echo/run", "Bearer wrong", 401),
    ("PUT", "/v2/echo/run", VALID, 405),
    ("PUT", "/v2/sp%20ace/manifests/1", MANAGE, 400),
]


@pytest.mark.parametrize(("method", "path", "key", "status"), EARLY)
@pytest.mark.parametrize("size", [50_000, 100_000, 1_000_000])
def test_aiohttp_goes_on_with_its_session(method, path, key, status, size):
    async def calls():
        async with aiohttp.ClientSession(URL) as session:
            for _ in range(10):
                headers = {"Authorization": key}
                async with session.request(method, path, data=b"x" * size, headers=headers) as refused:
                    assert refused.status == status
                    await refused.read()
                headers = {"Authorization": VALID}
                async with session.post("/v2/echo/runsync", json={"input": {}}, headers=headers) as answer:
                    assert answer.status == 200
                    assert (await answer.json())["status"] == "COMPLETED"

    asyncio.run(calls())


@pytest.mark.parametrize(("method", "path", "key", "status"), EARLY)
@pytest.mark.parametrize("size", [2 << 20, 9 << 20])
def test_urllib_sends_all_and_reads_the_refusal(method, path, key, status, size):
    for _ in range(5):
        request = urllib.request.Request(URL + path, b"x" * size, {"Authorization": key}, method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        assert refused.value.code == status
        refused.value.read()


@pytest.mark.parametrize(("size", "connections"), [(100_000, 1), (5 << 20, 2)])
def test_curl_goes_on_after_a_refusal(tmp_path, size, connections):
    body = tmp_path / "body"
    body.write_bytes(b"x" * size)
    common = ["-s", "--http1.1", "-H", f"Authorization: {VALID}", "-w", "%{http_code} %{num_connects}\n", "-o", os.devnull]
    first = [*common, "-H", "Expect:", "--data-binary", f"@{body}", f"{URL}/v2/none/run"]
    second = [*common, "-d", json.dumps({"input": {}}), f"{URL}/v2/echo/runsync"]
    done = subprocess.run(["curl", *first, "--next", *second], check=True, capture_output=True, text=True)
    answers = [line.split() for line in done.stdout.splitlines()]
    assert [status for status, _ in answers] == ["404", "200"]
    # A short body leaves the connection to the next call.
    assert sum(int(made) for _, made in answers) == connections
