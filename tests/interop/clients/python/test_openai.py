"""`openai`: the clients of OpenAI, blocking and asyncio, with nothing but their own settings."""

import asyncio
import json
import os
import urllib.request

import openai
import pytest
from conftest import KEY, wait_until

URL = os.environ["GRISTMILL_URL"]
MODEL = "gristmill-markov"
MESSAGES = [
    {"role": "system", "content": "You are a miller."},
    {"role": "user", "content": [{"type": "text", "text": "How is bread made?"}]},
]
# A request that makes the playground emit a chunk each 300 ms for five minutes.
SLOWLY = {"op": "emit", "delay_ms": 300, "values": [{"choices": [], "i": i} for i in range(1000)]}


def settings(endpoint, key=KEY):
    return {"base_url": f"{URL}/v2/{endpoint}/openai/v1", "api_key": key, "max_retries": 0}


@pytest.fixture
def client():
    with openai.OpenAI(**settings("chat")) as client:
        yield client


@pytest.fixture
def playground():
    with openai.OpenAI(**settings("playground")) as client:
        yield client


def call(client, **more):
    """The answers of both kinds of client to the same request."""
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, seed=3, **more)


def status(job):
    request = urllib.request.Request(f"{URL}/v2/playground/status/{job}")
    request.add_header("Authorization", f"Bearer {KEY}")
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["status"]


def test_models(client):
    [model] = client.models.list().data
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "gristmill")
    assert client.models.retrieve(MODEL) == model
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("mill/large")
    assert (error.value.code, error.value.param) == ("model_not_found", "model")
    assert "mill/large" in error.value.message


def test_chat(client):
    answer = call(client, max_tokens=30)
    [choice] = answer.choices
    assert answer.object == "chat.completion" and choice.message.role == "assistant"
    assert choice.message.content.startswith("Bread")
    assert choice.finish_reason in ("length", "stop")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert call(client, max_tokens=30).choices == answer.choices
    stopped = call(client, stop=[" and", " the"], temperature=0)
    assert stopped.choices[0].finish_reason == "stop"
    assert " the" not in stopped.choices[0].message.content


def test_the_request_is_named_by_its_job(client):
    answer = call(client)
    assert answer._request_id == answer.id.removeprefix("chatcmpl-")


def test_files_are_refused_with_a_reason(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.transcriptions.create(model=MODEL, file=("a.wav", b"RIFF"))
    assert "multipart/form-data" in refused.value.message


def test_chat_stream(client):
    whole = call(client, max_completion_tokens=30)
    chunks = list(call(client, max_completion_tokens=30, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert all(chunk.usage is None for chunk in chunks)


def test_chat_stream_with_usage(client):
    whole = call(client, max_tokens=30)
    options = {"include_usage": True}
    *chunks, last = call(client, max_tokens=30, stream=True, stream_options=options)
    assert last.choices == [] and last.usage == whole.usage
    assert len(chunks) == whole.usage.completion_tokens + 1


def test_completions(client):
    answer = client.completions.create(model=MODEL, prompt="The upper", temperature=0, max_tokens=1)
    assert (answer.object, answer.choices[0].text) == ("text_completion", " stone")
    chunks = client.completions.create(model=MODEL, prompt="Rye grows where", seed=1, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks).startswith(" wheat")


def test_what_is_wrong(client):
    with pytest.raises(openai.BadRequestError) as error:
        call(client, temperature=3)
    assert (error.value.status_code, error.value.param) == (400, "temperature")
    with pytest.raises(openai.BadRequestError) as error:
        call(client, n=2, stream=True)
    assert error.value.param == "n"
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="gpt", messages=MESSAGES)
    assert error.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError) as error:
        call(openai.OpenAI(**settings("nowhere")))
    assert error.value.type == "not_found_error" and "nowhere" in error.value.message
    with pytest.raises(openai.AuthenticationError) as error:
        call(openai.OpenAI(**settings("chat", "wrong")))
    assert error.value.type == "authentication_error"


@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_handler(playground, stream):
    with pytest.raises(openai.InternalServerError) as error:
        call(playground, stream=stream, extra_body={"op": "fail", "message": "no more flour"})
    assert error.value.code == "job_failed" and "no more flour" in error.value.message


def test_a_handler_that_fails_while_it_streams(playground):
    body = {"op": "emit", "values": [{"choices": []}], "message": "no more flour"}
    chunks = call(playground, stream=True, extra_body=body)
    assert next(chunks).choices == []
    with pytest.raises(openai.APIError, match="no more flour"):
        next(chunks)


def test_closing_the_stream_cancels_the_job(playground):
    stream = call(playground, stream=True, extra_body=SLOWLY)
    job = stream.response.headers["x-job-id"]
    assert next(stream).i == 0
    assert status(job) == "IN_PROGRESS"
    stream.close()
    wait_until(lambda: status(job) == "CANCELLED")


def test_asyncio():
    async def body():
        async with openai.AsyncOpenAI(**settings("chat")) as client:
            assert [model.id async for model in client.models.list()] == [MODEL]
            whole = await call(client, max_tokens=20)
            options = {"include_usage": True}
            stream = await call(client, max_tokens=20, stream=True, stream_options=options)
            *chunks, last = [chunk async for chunk in stream]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert (text, last.usage) == (whole.choices[0].message.content, whole.usage)
            answers = await asyncio.gather(*(call(client, max_tokens=20) for _ in range(40)))
            assert all(answer.choices == whole.choices for answer in answers)
            completion = await client.completions.create(model=MODEL, prompt="The mill", max_tokens=3)
            assert completion.usage.completion_tokens <= 3
            with pytest.raises(openai.BadRequestError):
                await call(client, max_tokens=0)
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve("gpt")

    asyncio.run(body())


def test_asyncio_failures_and_cancellation():
    async def body():
        async with openai.AsyncOpenAI(**settings("playground")) as playground:
            with pytest.raises(openai.InternalServerError):
                await call(playground, extra_body={"op": "trap"})
            stream = await call(playground, stream=True, extra_body=SLOWLY)
            job = stream.response.headers["x-job-id"]
            async for chunk in stream:
                if chunk.i == 2:
                    break
            await stream.close()
            await asyncio.to_thread(wait_until, lambda: status(job) == "CANCELLED")

    asyncio.run(body())
