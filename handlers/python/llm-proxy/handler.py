"""Passes calls of OpenAI's clients on to a server with OpenAI's API, and its events back at once.

The environment names the server: `UPSTREAM_URL`, such as `https://api.example.com/v1`, and
`UPSTREAM_KEY`. Clients have the keys of this host instead, with their limits and their bills.
"""

import os
from collections.abc import AsyncIterator
from typing import Any, NotRequired, TypedDict

import httpx

import gristmill


class Input(TypedDict):
    """What the host makes of a call below `/v2/ENDPOINT/openai`."""

    openai_route: str
    openai_input: NotRequired[dict[str, Any]]


@gristmill.handler
async def proxy(ctx: gristmill.Context, input: Input) -> AsyncIterator[Any]:
    body = input.get("openai_input")
    async with client() as upstream:
        request = upstream.build_request(
            "GET" if body is None else "POST", input["openai_route"].removeprefix("/v1"), json=body
        )
        response = await upstream.send(request, stream=True)
        if body is None or not body.get("stream") or response.is_error:
            await response.aread()
            yield document(response)
            return
        # A chunk that is a string is sent to the client as it is.
        async for line in response.aiter_lines():
            if line:
                yield f"{line}\n\n"


def client() -> httpx.AsyncClient:
    key = os.environ.get("UPSTREAM_KEY")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(base_url=os.environ["UPSTREAM_URL"], headers=headers, timeout=None)


def document(response: httpx.Response) -> Any:
    """The answer, or an error object, from which the host takes the status code."""
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if isinstance(answer, dict) and (response.is_success or isinstance(answer.get("error"), dict)):
        return answer
    code = response.status_code if response.is_error else 502
    message = f"the upstream server answered {response.status_code}"
    return {"error": {"message": message, "type": "upstream_error", "code": code}}
