import io
import os
import tempfile
import unittest
from pathlib import Path
from urllib.parse import urlencode
from wsgiref.util import setup_testing_defaults

from handler import app


def call(method: str, fields: dict[str, str] | None = None) -> tuple[int, dict[str, str], str]:
    body = urlencode(fields or {}).encode()
    environ = {"REQUEST_METHOD": method, "SCRIPT_NAME": "/http/form", "PATH_INFO": "/"}
    environ |= {"CONTENT_TYPE": "application/x-www-form-urlencoded"}
    environ |= {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    setup_testing_defaults(environ)
    heads: list[tuple[str, dict[str, str]]] = []

    def start(status, headers, exc_info=None):
        heads.append((status, dict(headers)))

    blocks = b"".join(app(environ, start))
    status, headers = heads[0]
    return int(status.split()[0]), headers, blocks.decode()


class Form(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        os.environ["BOOK"] = str(Path(directory.name, "book.jsonl"))

    def test_an_entry_is_shown_as_text(self) -> None:
        status, headers, _ = call("POST", {"name": "Zoë", "text": "<script>&"})
        self.assertEqual((status, headers["Location"]), (303, "/http/form/"))
        status, _, page = call("GET")
        self.assertEqual(status, 200)
        self.assertIn("<b>Zoë</b>: &lt;script&gt;&amp;", page)
        self.assertIn('action="/http/form/"', page)

    def test_both_fields_are_needed(self) -> None:
        for fields in [{}, {"name": "a"}, {"name": "a", "text": "x" * 1001}]:
            status, _, page = call("POST", fields)
            self.assertEqual(status, 400)
            self.assertIn("fill in both", page)


if __name__ == "__main__":
    unittest.main()
