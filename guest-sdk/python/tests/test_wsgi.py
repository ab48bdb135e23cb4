"""What a WSGI application gets, and what of its answer a client sees; the client is a fake."""

import unittest
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.validate import validator

from gristmill import _wsgi


class Client:
    """Keeps the answer; it may leave after some blocks."""

    def __init__(
        self,
        method: str = "GET",
        target: str = "/",
        headers: list[tuple[str, bytes]] | None = None,
        body: bytes = b"",
        leaves_after: int | None = None,
    ) -> None:
        self.method, self.scheme, self.authority, self.target = method, "http", "a.example", target
        self.headers = headers or []
        self.body = body
        self.leaves_after = leaves_after
        self.status: int | None = None
        self.answered: list[tuple[str, bytes]] = []
        self.blocks: list[bytes] = []
        self.is_finished = False
        self.logs: list[str] = []

    def read(self, most: int) -> bytes:
        data, self.body = self.body[: min(most, 3)], self.body[min(most, 3) :]
        return data

    def start(self, status: int, headers: list[tuple[str, bytes]]) -> None:
        assert self.status is None
        self.status, self.answered = status, headers

    def write(self, data: bytes) -> None:
        if self.leaves_after == len(self.blocks):
            raise ConnectionResetError
        self.blocks.append(data)

    def finish(self) -> None:
        self.is_finished = True

    def call(self, application: Callable[..., Any]) -> "Client":
        _wsgi.answer(application, self, self.logs.append)
        return self


def simple(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"rye"]


class Environ(unittest.TestCase):
    def of(self, **request: Any) -> dict[str, Any]:
        return _wsgi.environ(Client(**request))

    def test_the_target_is_divided(self) -> None:
        environ = self.of(target="/a%2Fb/%C3%A9?x=%20&y")
        self.assertEqual(environ["PATH_INFO"], "/a/b/Ã©")
        self.assertEqual(environ["QUERY_STRING"], "x=%20&y")
        self.assertEqual(environ["REQUEST_URI"], "/a%2Fb/%C3%A9?x=%20&y")

    def test_headers_have_the_names_of_cgi(self) -> None:
        headers = [("content-type", b"a/b"), ("content-length", b"3"), ("x-one", b"1"), ("x-one", b"\xe9")]
        environ = self.of(headers=[*headers, ("x-forwarded-prefix", b"/http/mill")])
        self.assertEqual((environ["CONTENT_TYPE"], environ["CONTENT_LENGTH"]), ("a/b", "3"))
        self.assertEqual(environ["HTTP_X_ONE"], "1, é")
        self.assertEqual(environ["SCRIPT_NAME"], "/http/mill")
        self.assertNotIn("HTTP_CONTENT_TYPE", environ)

    def test_the_authority_has_a_port_or_not(self) -> None:
        for authority, expected in [
            ("a.example", ("a.example", "80")),
            ("a.example:81", ("a.example", "81")),
            ("[::1]", ("[::1]", "80")),
            ("[::1]:8080", ("[::1]", "8080")),
        ]:
            client = Client()
            client.authority = authority
            environ = _wsgi.environ(client)
            self.assertEqual((environ["SERVER_NAME"], environ["SERVER_PORT"]), expected)

    def test_the_body_is_read_in_pieces(self) -> None:
        body = self.of(method="POST", body=b"to be\nor not")["wsgi.input"]
        self.assertEqual((body.readline(), body.read()), (b"to be\n", b"or not"))


class Answers(unittest.TestCase):
    def test_the_rules_of_pep_3333_hold(self) -> None:
        client = Client(headers=[("content-type", b"text/plain")]).call(validator(simple))
        self.assertEqual((client.status, client.blocks, client.is_finished), (200, [b"rye"], True))
        self.assertEqual(client.logs, [])

    def test_a_body_of_one_block_has_its_length(self) -> None:
        self.assertIn(("content-length", b"3"), Client().call(simple).answered)

        def none(environ: Any, start_response: Any) -> list[bytes]:
            start_response("204 No Content", [])
            return []

        self.assertEqual(Client().call(none).answered, [])

    def test_blocks_are_sent_before_the_next_is_asked_for(self) -> None:
        client = Client()

        def stream(environ: Any, start_response: Any) -> Iterator[bytes]:
            write = start_response("200 OK", [])
            write(b"0")
            for number in (b"1", b"2"):
                yield number
                assert client.blocks[-1] == number

        self.assertEqual(client.call(stream).blocks, [b"0", b"1", b"2"])
        self.assertTrue(client.is_finished)

    def test_an_error_before_the_head_is_an_answer_without_its_text(self) -> None:
        def failing(environ: Any, start_response: Any) -> list[bytes]:
            raise RuntimeError("no flour")

        def silent(environ: Any, start_response: Any) -> list[bytes]:
            return [b"rye"]

        for application, logged in [(failing, "no flour"), (silent, "start_response")]:
            client = Client().call(application)
            self.assertEqual((client.status, client.blocks), (500, [b"internal error\n"]))
            self.assertIn(logged, client.logs[0])

    def test_an_error_after_the_head_leaves_the_answer_without_its_end(self) -> None:
        closed = []

        class Blocks:
            def __iter__(self) -> Iterator[bytes]:
                yield b"half"
                raise RuntimeError("no water")

            def close(self) -> None:
                closed.append(True)

        def half(environ: Any, start_response: Any) -> Blocks:
            start_response("200 OK", [])
            return Blocks()

        client = Client().call(half)
        self.assertEqual((client.status, client.blocks, client.is_finished), (200, [b"half"], False))
        self.assertEqual((len(client.logs), closed), (1, [True]))

    def test_a_client_that_leaves_ends_the_application(self) -> None:
        asked = []

        def endless(environ: Any, start_response: Any) -> Iterator[bytes]:
            start_response("200 OK", [])
            while True:
                asked.append(True)
                yield b"x"

        client = Client(leaves_after=2).call(endless)
        self.assertEqual((len(asked), client.logs, client.is_finished), (3, [], False))

    def test_a_head_may_be_replaced_only_before_it_is_sent(self) -> None:
        def again(environ: Any, start_response: Any) -> list[bytes]:
            start_response("200 OK", [])
            try:
                raise RuntimeError("no flour")
            except RuntimeError as error:
                start_response("503 No", [], (type(error), error, error.__traceback__))
            return [b"later"]

        self.assertEqual(Client().call(again).status, 503)


if __name__ == "__main__":
    unittest.main()
