"""The test programs of wasmtime for `wasi:http` 0.2, with the requests of wasmtime's own tests: `p2_cli_serve_*` of
tests/all/cli_tests.rs, and crates/wasi-http/tests/all/p2.rs."""

import base64
import concurrent.futures
import hashlib

from client import UPSTREAM, ComponentTest, Endpoint, pieces_of
from upstream import BODIES


class HelloWorld(ComponentTest):
    component = "p2-cli-serve-hello-world"

    def test_many(self):
        for endpoint in self.ways():
            with concurrent.futures.ThreadPoolExecutor(10) as pool:
                answers = list(pool.map(lambda _: endpoint.get("/"), range(100)))
            self.assertEqual({(answer.status, answer.body) for answer in answers}, {(200, b"Hello, WASI!")})


class EchoEnv(ComponentTest):
    component = "p2-cli-serve-echo-env"

    def test_env(self):
        for endpoint in self.ways():
            answer = endpoint.get("/", {"env": "FOO"})
            self.assertEqual((answer.status, answer.body, answer.headers["env"]), (200, b"", "bar"))
            answer = endpoint.get("/", {"env": "BAR"})
            self.assertEqual((answer.status, answer.body, answer.headers["env"]), (200, b"", None))


class AuthorityAndScheme(ComponentTest):
    """The component asserts the authority `localhost`, and `http`."""

    component = "p2-cli-serve-authority-and-scheme"

    def test_both(self):
        # By a name, the authority is that name.
        by_path = Endpoint(self.component)
        self.assertEqual(by_path.get("/", {"Host": "localhost"}).status, 200)
        # wasmtime's test does this with CONNECT, which no handler gets here.
        self.assertEqual(by_path.call("CONNECT", "/", headers={"Host": "localhost"}).status, 405)


class WithPrint(ComponentTest):
    component = "p2-cli-serve-with-print"

    def test_twice(self):
        for endpoint in self.ways():
            self.assertEqual(endpoint.get("/").status, 200)


class NeverSet(ComponentTest):
    component = "p2-cli-serve-return-before-set"

    def test_failure(self):
        for endpoint in self.ways():
            for _ in range(2):
                answer = endpoint.get("/")
                self.assertEqual((answer.status, answer.headers["x-gristmill-error"]), (500, "handler_failed"))


class Trap(NeverSet):
    component = "p2-cli-serve-trap-before-set"


class Sleep(ComponentTest):
    """It sleeps for ever; `wasmtime serve` answers 500 at its time limit."""

    component = "p2-cli-serve-sleep"

    def test_limit(self):
        for endpoint in self.ways():
            answer = endpoint.get("/")
            self.assertEqual((answer.status, answer.headers["x-gristmill-error"]), (504, "handler_timed_out"))


class ApiProxy(ComponentTest):
    """The component asserts a scheme, an authority and a path, no file system, and that `host` is no header."""

    component = "p2-api-proxy"

    def test_early_drop(self):
        self.check_text("/early_drop", "hello, world!")

    def test_limits_of_fields(self):
        for endpoint in self.ways():
            for path in ("/new_fields/50", "/modify_fields/50"):
                answer = endpoint.get(path)
                self.assertEqual((answer.status, answer.body), (200, b"Ok(())"))
            # More than a component may keep of fields.
            answer = endpoint.get("/new_fields/200000")
            self.assertEqual(answer.headers["x-gristmill-error"], "handler_failed")


class Streaming(ComponentTest):
    component = "p2-api-proxy-streaming"

    def test_echo(self):
        self.check_echo("/echo", "application/octet-stream")

    def test_double_echo(self):
        megabyte = bytes(251 * n % 256 for n in range(1 << 20))
        headers = {"url": f"http://{UPSTREAM}/echo", "Content-Type": "application/octet-stream"}
        for endpoint in self.ways():
            answer = endpoint.call("POST", "/double-echo", pieces_of(megabyte), headers)
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.body, megabyte)

    def test_hash_all(self):
        for path, body in BODIES.items():
            url = f"http://{UPSTREAM}{path}"
            digest = base64.b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")
            for endpoint in self.ways():
                answer = endpoint.get("/hash-all", {"url": url})
                self.assertEqual(answer.body.decode(), f"{url}: {digest}\n")

    def test_a_denied_request(self):
        for endpoint in self.ways():
            answer = endpoint.get("/hash-all", {"url": "http://forbidden.example/"})
            self.assertIn(b"HttpRequestDenied", answer.body)


class ForwardRequest(ComponentTest):
    """It sends its own request again, to the authority that it was sent to."""

    component = "p2-api-proxy-forward-request"

    def test_forward(self):
        answer = Endpoint(self.component).get("/a", {"Host": UPSTREAM})
        self.assertEqual((answer.status, answer.body), (200, BODIES["/a"]))
