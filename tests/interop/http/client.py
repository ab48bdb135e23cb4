"""Requests to the endpoints of a host, by a path and by a name, for the tests of this folder.

run.sh has deployed the components, and has set GRISTMILL_URL, GRISTMILL_API_KEY, HTTP_ADDRESS, HTTP_DEPLOYED and
HTTP_UPSTREAM.
"""

import contextlib
import dataclasses
import http.client
import os
import unittest
import urllib.parse

API = urllib.parse.urlsplit(os.environ["GRISTMILL_URL"]).netloc
NAMES = os.environ["HTTP_ADDRESS"]
UPSTREAM = os.environ["HTTP_UPSTREAM"]
KEY = os.environ["GRISTMILL_API_KEY"]
DEPLOYED = os.environ["HTTP_DEPLOYED"].split()


@dataclasses.dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclasses.dataclass
class Endpoint:
    """One of the two ways to the endpoint of a component."""

    name: str
    by_name: bool = False

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(NAMES if self.by_name else API, timeout=60)

    def path(self, path: str) -> str:
        return path if self.by_name else f"/http/{self.name}{path}"

    def headers(self) -> dict[str, str]:
        host = {"Host": f"{self.name}.localhost"} if self.by_name else {}
        return {"Authorization": f"Bearer {KEY}"} | host

    def start(self, connection, method, path, body=None, headers=()):
        """Sends the request, and returns the answer's head."""
        connection.request(method, self.path(path), body, self.headers() | dict(headers))
        return connection.getresponse()

    def call(self, method, path, body=None, headers=()) -> Answer:
        with contextlib.closing(self.connect()) as connection:
            response = self.start(connection, method, path, body, headers)
            return Answer(response.status, response.headers, response.read())

    def get(self, path, headers=()) -> Answer:
        return self.call("GET", path, headers=headers)


class ComponentTest(unittest.TestCase):
    """The tests of one component; they are skipped when it is not there."""

    component: str

    @classmethod
    def setUpClass(cls):
        if cls.component not in DEPLOYED:
            raise unittest.SkipTest(f"{cls.component} was not given")

    def ways(self) -> list[Endpoint]:
        return [Endpoint(self.component), Endpoint(self.component, by_name=True)]

    def check_text(self, path, text, status=200):
        for endpoint in self.ways():
            answer = endpoint.get(path)
            self.assertEqual((answer.status, answer.body.decode()), (status, text), endpoint)

    def check_echo(self, path, content_type="application/octet-stream"):
        """A short body comes back, and a megabyte with and without a length."""
        megabyte = bytes(251 * n % 256 for n in range(1 << 20))
        for endpoint in self.ways():
            for expected, sent in ((b"hello\n", b"hello\n"), (megabyte, megabyte), (megabyte, pieces_of(megabyte))):
                answer = endpoint.call("POST", path, sent, {"Content-Type": content_type})
                self.assertEqual((answer.status, len(answer.body)), (200, len(expected)), endpoint)
                self.assertEqual(answer.body, expected)


def pieces_of(body: bytes, size: int = 16 << 10):
    return (body[at : at + size] for at in range(0, len(body), size))
