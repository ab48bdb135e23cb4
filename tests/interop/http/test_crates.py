"""Examples of crates, as crates.io has them. The expectations for wstd are those of wstd's own test of this example,
except that an error of the handler is 502 here, and 500 in `wasmtime serve`."""

import contextlib
import http.client
import time

from client import ComponentTest


class WstdHttpServer(ComponentTest):
    component = "wstd-http-server"

    def test_home(self):
        self.check_text("/", "Hello, wasi:http/proxy world!\n")
        self.check_text("/none", "", status=404)

    def test_waits(self):
        for endpoint in self.ways():
            for path in ("/wait-response", "/wait-body"):
                answer = endpoint.get(path)
                self.assertRegex(answer.body, rb"^slept for [1-9]\d{3,} millis\n$")

    def test_bodies_stream(self):
        for endpoint in self.ways():
            # A test that is not run in time sees the pieces at once.
            self.assertTrue(any(self.wait_for_body(endpoint) > 0.5 for _ in range(5)), endpoint)
            self.assertTrue(any(self.wait_for_pieces(endpoint) > 0.2 for _ in range(5)), endpoint)

    def wait_for_body(self, endpoint) -> float:
        """Seconds between the head and the end of an answer."""
        with contextlib.closing(endpoint.connect()) as connection:
            response = endpoint.start(connection, "GET", "/wait-body")
            begin = time.monotonic()
            response.read()
            return time.monotonic() - begin

    def wait_for_pieces(self, endpoint) -> float:
        """Seconds between the first and the last piece of an answer."""
        with contextlib.closing(endpoint.connect()) as connection:
            response = endpoint.start(connection, "GET", "/stream-body")
            lines = [(time.monotonic(), response.readline()) for _ in range(5)]
            self.assertEqual(response.read(), b"")
            for at, (_, line) in enumerate(lines):
                self.assertGreaterEqual(int(line.split()[2]), 100 * (at + 1))
            return lines[4][0] - lines[0][0]

    def test_echo(self):
        self.check_echo("/echo")

    def test_headers(self):
        colours = {"Red": "Rhubarb", "Orange": "Carrots", "Yellow": "Bananas", "Purple": "Beets"}
        for endpoint in self.ways():
            answer = endpoint.get("/echo-headers", colours)
            self.assertEqual({name: answer.headers[name] for name in colours}, colours)

    def test_status(self):
        for endpoint in self.ways():
            for status in ("201", "302", "401", "500"):
                answer = endpoint.get("/response-status", {"X-Response-Status": status})
                self.assertEqual((str(answer.status), answer.body), (status, b""))

    def test_an_error_is_an_answer_of_the_host(self):
        for endpoint in self.ways():
            answer = endpoint.get("/response-fail")
            self.assertEqual((answer.status, answer.headers["x-gristmill-error"]), (502, "invalid_answer"))

    def test_a_body_that_fails_breaks_the_connection(self):
        for endpoint in self.ways():
            with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
                endpoint.get("/response-body-fail")


class WstdHttpServerProxy(ComponentTest):
    component = "wstd-http-server-proxy"

    def test_it_forwards(self):
        self.check_text("/proxy/", "Hello, wasi:http/proxy world!\n")
        self.check_text("/other", "", status=404)


class WstdAxum(ComponentTest):
    component = "wstd-axum-hello-world"

    def test_routes(self):
        self.check_text("/", "<h1>Hello, World!</h1>")
        for endpoint in self.ways():
            answer = endpoint.get("/")
            self.assertEqual(answer.headers["Content-Type"], "text/html; charset=utf-8")
            # Pages are shown by a name only.
            shown = answer.headers["Content-Disposition"] is None
            self.assertEqual(shown, endpoint.by_name)
            self.assertEqual(endpoint.get("/none").status, 404)
            self.assertEqual(endpoint.call("POST", "/", b"x").status, 405)
            head = endpoint.call("HEAD", "/")
            self.assertEqual((head.status, head.body), (200, b""))


class WasiHttpProxy(ComponentTest):
    """Bindings of WASI 0.2.0."""

    component = "wasi-http-proxy"

    def test_hello(self):
        self.check_text("/", "Hello, WASI!")
        self.check_text("/any?path", "Hello, WASI!")


class Wasip2HttpProxy(WasiHttpProxy):
    """Bindings of WASI 0.2.12."""

    component = "wasip2-http-proxy"


class Wasip2HttpProxyWithoutStd(WasiHttpProxy):
    component = "wasip2-http-proxy-no-std"
