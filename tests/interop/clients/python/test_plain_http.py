"""No SDK: the documented API with nothing but the standard library."""

import json
import os
import urllib.error
import urllib.request

import pytest
from conftest import FINAL, KEY

URL = os.environ["GRISTMILL_URL"]


def call(method, path, body=None, key=f"Bearer {KEY}"):
    """The answer's headers and its body, which must be JSON."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": key, "Content-Type": "application/json"}
    request = urllib.request.Request(URL + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/json"
        return response.headers, json.load(response)


def run(endpoint, **request_input):
    _, job = call("POST", f"/v2/{endpoint}/run", {"input": request_input})
    assert job["status"] == "IN_QUEUE"
    return job["id"]


def test_stream_is_the_documented_array():
    job = run("token-stream", prompt="grain by grain by grain", delay_ms=400)
    elements, status = [], None
    while status not in FINAL:
        headers, part = call("GET", f"/v2/token-stream/stream/{job}")
        assert isinstance(part, list)
        elements += part
        status = headers["X-Job-Status"]
        assert headers["X-Stream-Next"] == str(len(elements))
    assert status == "COMPLETED"
    assert [element["output"] for element in elements] == ["grain", " by", " grain", " by", " grain"]
    assert [element["metrics"]["stream_index"] for element in elements] == list(range(5))
    assert elements[-1]["metrics"] == {"input_tokens": 5, "output_tokens": 5, "stream_index": 4}
    assert call("GET", f"/v2/token-stream/stream/{job}")[1] == []


def test_the_other_mount_differs_in_the_stream_only():
    job = run("playground", op="stream", count=3)
    headers, result = call("GET", f"/sdk/v2/playground/status-sync/{job}")
    assert result["output"] == [{"i": 0}, {"i": 1}, {"i": 2}]
    assert call("GET", f"/v2/playground/status/{job}")[1] == result
    array = call("GET", f"/v2/playground/stream/{job}?from=0")[1]
    assert [element["output"] for element in array] == result["output"]
    wrapped = call("GET", f"/sdk/v2/playground/stream/{job}")[1]
    assert wrapped == {"status": "COMPLETED", "stream": array}


def test_runsync_and_the_bare_key():
    body = {"input": {"op": "echo", "value": 1}}
    headers, result = call("POST", "/v2/playground/runsync?wait=60000", body, key=KEY)
    assert result["status"] == "COMPLETED" and result["output"] == {"echo": 1}
    assert headers["X-Job-Id"] == result["id"]
    assert isinstance(result["delayTime"], int) and isinstance(result["executionTime"], int)


@pytest.mark.parametrize(("key", "path", "code"), [("wrong", "echo", 401), (KEY, "nowhere", 404)])
def test_errors_are_json(key, path, code):
    with pytest.raises(urllib.error.HTTPError) as refused:
        call("POST", f"/v2/{path}/run", {"input": {}}, key=f"Bearer {key}")
    assert refused.value.code == code
    assert refused.value.headers["Content-Type"] == "application/json"
    error = json.load(refused.value)
    assert isinstance(error["error"], str) and "status" not in error
