import unittest
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest import mock

import handler
import httpx
from gristmill.testing import TestContext

Answer = Callable[[httpx.Request], httpx.Response]


class Proxy(unittest.TestCase):
    def run_job(self, answer: Answer, job_input: dict[str, Any]) -> list[Any]:
        client = httpx.AsyncClient(
            transport=httpx.MockTransport(answer), base_url="http://upstream/v1"
        )
        ctx = TestContext()
        with mock.patch.object(handler, "client", lambda: client):
            ctx.run(handler.proxy, job_input)
        return ctx.outputs

    def test_events_are_passed_on_unchanged(self) -> None:
        events = 'data: {"a":1}\n\ndata: [DONE]\n\n'
        chunks = self.run_job(
            lambda request: httpx.Response(200, text=events),
            {"openai_route": "/v1/chat/completions", "openai_input": {"stream": True}},
        )
        self.assertEqual(chunks, ['data: {"a":1}\n\n', "data: [DONE]\n\n"])

    def test_an_event_keeps_its_lines_wherever_the_pieces_end(self) -> None:
        expected = [
            ": begin\n\n",
            "event: token\nid: 1\ndata: {\"a\":\"\u2028\"}\n\n",
            "data: [DONE]\n\n",
        ]
        for line_end in ["\n", "\r\n"]:
            stream = "".join(expected).replace("\n", line_end)
            # Some servers end the stream without the last empty line.
            for text in [stream, stream.rstrip()]:
                sent = text.encode()
                for size in [1, 2, 3, 7, len(sent)]:
                    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
                    self.assertEqual(self.stream(pieces), expected, (line_end, size))

    def stream(self, pieces: list[bytes]) -> list[Any]:
        async def content() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        return self.run_job(
            lambda request: httpx.Response(200, content=content()),
            {"openai_route": "/v1/chat/completions", "openai_input": {"stream": True}},
        )

    def test_the_route_is_kept(self) -> None:
        chunks = self.run_job(
            lambda request: httpx.Response(200, json={"at": f"{request.method} {request.url}"}),
            {"openai_route": "/v1/models"},
        )
        self.assertEqual(chunks, [{"at": "GET http://upstream/v1/models"}])

    def test_an_error_is_passed_on(self) -> None:
        refusal = {"error": {"message": "no", "type": "rate_limit_error"}}
        chunks = self.run_job(
            lambda request: httpx.Response(429, json=refusal),
            {"openai_route": "/v1/chat/completions", "openai_input": {"stream": True}},
        )
        self.assertEqual(chunks, [refusal])

    def test_an_error_without_a_document_has_its_status(self) -> None:
        chunks = self.run_job(
            lambda request: httpx.Response(503, text="<html>"), {"openai_route": "/v1/models"}
        )
        self.assertEqual(chunks[0]["error"]["code"], 503)


if __name__ == "__main__":
    unittest.main()
