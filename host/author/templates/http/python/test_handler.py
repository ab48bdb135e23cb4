import io
import json
import unittest
from wsgiref.util import setup_testing_defaults

from handler import app


def call(method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "CONTENT_TYPE": "application/json"}
    environ |= {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    setup_testing_defaults(environ)
    statuses: list[str] = []
    blocks = app(environ, lambda status, headers, exc_info=None: statuses.append(status))
    return int(statuses[0].split()[0]), b"".join(blocks)


class Answers(unittest.TestCase):
    def test_a_greeting(self) -> None:
        self.assertEqual(call("GET", "/"), (200, b"hello\n"))

    def test_words_are_counted(self) -> None:
        status, body = call("POST", "/words", b'{"text":"to be or not"}')
        self.assertEqual((status, json.loads(body)), (200, {"words": 4}))

    def test_the_text_is_needed(self) -> None:
        self.assertEqual(call("POST", "/words", b"{}")[0], 400)


if __name__ == "__main__":
    unittest.main()
