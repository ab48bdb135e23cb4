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
        async for event in events(response.aiter_text()):
            yield event


async def events(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    """The whole events of a stream, each with all its lines and the empty line at its end."""
    rest = ""
    async for piece in pieces:
        # The whole rest, since a piece may end in the middle of a line end. Not `aiter_lines`,
        # which also splits at characters such as U+2028 in a token.
        *whole, rest = (rest + piece).replace("\r\n", "\n").split("\n\n")
        for event in whole:
            if event := event.strip("\n"):
                yield f"{event}\n\n"
    if event := rest.strip("\r\n"):
        yield f"{event}\n\n"


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
