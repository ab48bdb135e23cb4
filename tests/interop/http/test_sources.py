"""Components whose sources only GitHub has. README.md has their commits and the ways to build them."""

import contextlib
import hashlib
import json
import time

from client import UPSTREAM, ComponentTest
from upstream import BODIES


class SampleRust(ComponentTest):
    component = "rust-sample"

    def test_routes(self):
        self.check_text("/", "Hello, wasi:http/proxy world!\n")
        self.check_text("/none", "", status=404)
        self.check_echo("/echo")
        for endpoint in self.ways():
            self.assertRegex(endpoint.get("/wait").body, rb"^slept for \d{4,} millis\n$")
            answer = endpoint.get("/echo-headers", {"X-Test": "1"})
            self.assertEqual(answer.headers["X-Test"], "1")
            answer = endpoint.call("POST", "/echo-trailers", b"hello")
            self.assertEqual(answer.body, b"request had no trailers")

    def test_trailers_of_a_request_reach_the_component(self):
        for endpoint in self.ways():
            with contextlib.closing(endpoint.connect()) as connection:
                sent = endpoint.headers() | {"Transfer-Encoding": "chunked", "Trailer": "x-end"}
                connection.putrequest("POST", endpoint.path("/echo-trailers"), skip_host="Host" in sent)
                for name, value in sent.items():
                    connection.putheader(name, value)
                connection.endheaders()
                connection.send(b"5\r\nhello\r\n0\r\nx-end: yes\r\n\r\n")
                body = connection.getresponse().read()
                self.assertEqual(body, b'recieved trailers: {"x-end": "yes"}')


class SampleJs(ComponentTest):
    """The requests of the sample's own test, and those of its README."""

    component = "js-sample"

    def test_routes(self):
        self.check_text("/", "Hello, World!")
        for endpoint in self.ways():
            answer = endpoint.call("POST", "/echo", b"Test echo body", {"Content-Type": "text/plain"})
            self.assertEqual((answer.status, answer.body), (200, b"Test echo body"))
            answer = endpoint.get("/echo-headers", {"X-Test-Header": "123"})
            self.assertEqual(json.loads(answer.body)["x-test-header"], "123")
            begin = time.monotonic()
            answer = endpoint.get("/sleep/200")
            self.assertEqual((answer.status, answer.body), (200, b"Sleeping for 200ms..."))
            self.assertGreaterEqual(time.monotonic() - begin, 0.2)
            answer = endpoint.call("POST", "/upload", b"Hello World!\n", {"Content-Type": "text/plain"})
            self.assertEqual((answer.status, answer.body), (200, b"Hello World!\n"))


class PyHttp(ComponentTest):
    component = "py-http"

    def test_routes(self):
        self.check_echo("/echo", "text/plain")
        self.check_text("/none", "", status=400)
        url = f"http://{UPSTREAM}/a"
        expected = f"{url}: {hashlib.sha256(BODIES['/a']).hexdigest()}\n"
        for endpoint in self.ways():
            answer = endpoint.get("/hash-all", {"url": url})
            self.assertEqual((answer.status, answer.body.decode()), (200, expected))


class SpinHello(ComponentTest):
    component = "spin-hello"

    def test_hello(self):
        self.check_text("/", "Hello World!")
        self.check_text("/any/path", "Hello World!")


class WasmCloudHello(ComponentTest):
    component = "wasmcloud-hello-world"

    def test_routes(self):
        self.check_text("/", "Hello from wasmCloud!\n")
        self.check_text("/none", "Not found\n", status=404)


class WasmCloudHandler(ComponentTest):
    component = "wasmcloud-http-handler"

    def test_routes(self):
        self.check_text("/", "Hello from wasmCloud!\n")
        self.check_text("/api/greet?name=Eric", "Hello, Eric!\n")
        self.check_text("/api/greet", "Hello, world!\n")
        self.check_text("/none", "Not found\n", status=404)
        for endpoint in self.ways():
            answer = endpoint.call("POST", "/api/echo", b'{"message":"hello"}', {"Content-Type": "application/json"})
            self.assertEqual(json.loads(answer.body), {"message": "hello"})
            self.assertEqual(answer.headers["Content-Type"], "application/json")
