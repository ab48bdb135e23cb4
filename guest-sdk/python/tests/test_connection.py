"""The far end of an HTTP client's connection: real clients write requests to it and read responses."""

import http.client
import socket
import unittest
import urllib.request
from unittest import mock

from gristmill import _sockets, _ssl
from gristmill._connection import TLS_MARK, Connection


class Exchange:
    """Records a request and has a prepared response. Every second call would wait."""

    def __init__(self, log, answer, *request):
        self.log, self.answer, self.request = log, answer, request
        self.body = bytearray()
        self.finished = self.closed = False
        self.turn = 0
        log.append(self)

    def waits(self):
        self.turn += 1
        return self.turn % 2

    def write(self, data):
        if self.waits():
            return 0
        taken = data[:7]
        self.body += taken
        return len(taken)

    def finish(self):
        self.finished = True

    def head(self):
        return None if self.waits() else (self.answer[0], self.answer[1])

    def read(self, most):
        if self.waits():
            return None
        pieces = self.answer[2]
        piece = pieces.pop(0) if pieces else b""
        if isinstance(piece, OSError):
            raise piece
        return piece

    def until_writable(self):
        return "writable"

    def until_head(self):
        return "head"

    def until_readable(self):
        return "readable"

    def close(self):
        self.closed = True


class Clients(unittest.TestCase):
    def setUp(self):
        self.sent = []
        self.answer = (200, [(b"content-length", b"5")], [b"fl", b"our"])
        patches = [
            mock.patch.object(
                _sockets, "_open", lambda *r: Exchange(self.sent, self.answer, *r), create=True
            ),
            mock.patch.object(_sockets, "_wait", lambda pollables, timeout: {0}, create=True),
            mock.patch.object(_sockets, "_drop", lambda pollable: None, create=True),
            mock.patch.object(socket, "socket", _sockets.Socket),
            mock.patch.object(socket, "getaddrinfo", _sockets.getaddrinfo),
        ]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_request_and_its_response(self):
        with urllib.request.urlopen("http://mill.example:81/a?b=1", data=b"x" * 100) as response:
            self.assertEqual(response.read(), b"flour")
        [sent] = self.sent
        method, scheme, authority, target, headers, has_body = sent.request
        self.assertEqual(
            (method, scheme, authority, target, has_body),
            ("POST", "http", "mill.example:81", "/a?b=1", True),
        )
        self.assertEqual(bytes(sent.body), b"x" * 100)
        self.assertTrue(sent.finished and sent.closed)
        self.assertNotIn(b"host", dict(headers))
        self.assertEqual(dict(headers)[b"content-length"], b"100")

    def test_a_body_of_unknown_length_is_passed_on_in_both_directions(self):
        self.answer = (200, [], [b"one\n", b"two\n"])
        connection = http.client.HTTPConnection("mill.example")
        connection.request(
            "PUT",
            "/",
            iter([b"ab" * 50, b"", b"c"]),
            encode_chunked=True,
            headers={"transfer-encoding": "chunked"},
        )
        response = connection.getresponse()
        self.assertEqual(
            [response.readline(), response.readline(), response.readline()],
            [b"one\n", b"two\n", b""],
        )
        self.assertEqual(bytes(self.sent[0].body), b"ab" * 50 + b"c")
        self.assertNotIn(b"transfer-encoding", dict(self.sent[0].request[4]))

    def test_a_response_without_a_body_ends(self):
        for method, status in [("HEAD", 200), ("GET", 204), ("GET", 304)]:
            self.answer = (status, [(b"content-length", b"5")] if status == 200 else [], [])
            connection = http.client.HTTPConnection("mill.example")
            connection.request(method, "/")
            self.assertEqual(connection.getresponse().read(), b"")

    def test_no_body_is_written_after_a_head_alone(self):
        self.answer = (200, [], [b"flour"])
        connection = Connection(_sockets._open, "mill.example", 80)
        connection.feed(b"HEAD / HTTP/1.1\r\n\r\n")
        written = b""
        while (data := connection.pull(1000)) != b"":
            written += data or b""
        self.assertEqual(written, b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")

    def test_a_response_that_breaks_off_is_an_error(self):
        self.answer = (200, [], [b"one", ConnectionResetError(54, "reset")])
        connection = http.client.HTTPConnection("mill.example")
        connection.request("GET", "/")
        with self.assertRaises(ConnectionResetError):
            connection.getresponse().read()

    def test_a_marked_connection_is_https(self):
        for mark in [b"", TLS_MARK]:
            for size in [1, 1000]:  # in any pieces
                connection = Connection(_sockets._open, "mill.example", 443 if mark else 80)
                data = mark + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
                for start in range(0, len(data), size):
                    connection.feed(data[start : start + size])
                scheme, authority = self.sent[-1].request[1:3]
                self.assertEqual((scheme, authority), ("https" if mark else "http", "mill.example"))

    def test_the_sandbox_ssl_marks_a_connection(self):
        context = _ssl.module().create_default_context()
        with socket.create_connection(("mill.example", 443)) as plain:
            with context.wrap_socket(plain, server_hostname="mill.example") as encrypted:
                encrypted.sendall(b"GET / HTTP/1.1\r\n\r\n")
                self.assertEqual(encrypted.recv(12), b"HTTP/1.1 200")
        self.assertEqual(self.sent[0].request[1], "https")

    def test_an_address_with_colons_is_bracketed(self):
        connection = Connection(_sockets._open, "::1", 8080)
        connection.feed(b"GET / HTTP/1.1\r\n\r\n")
        self.assertEqual(self.sent[0].request[2], "[::1]:8080")

    def test_other_protocols_are_refused(self):
        for data in [
            b"\0\0\0\x08\x04\xd2\x16/",
            b"PING\r\n",
            b"EHLO mill\r\n",
            b"GET / HTTP/1.1\nmore" + b"x" * 70000,
            b"CONNECT a:1 HTTP/1.1\r\n\r\n",
        ]:
            with self.subTest(data[:20]):
                with self.assertRaises(OSError):
                    Connection(_sockets._open, "mill.example", 1).feed(data)
        self.assertEqual(self.sent, [])

    def test_malformed_requests_are_refused(self):
        for rest in [
            b"content-length: -1\r\n\r\n",
            b"content-length: x\r\n\r\n",
            b"no colon\r\n\r\n",
            b"content-length: 1\r\n\r\nab",
            b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        ]:
            with self.subTest(rest):
                with self.assertRaises(OSError):
                    Connection(_sockets._open, "mill.example", 80).feed(
                        b"PUT / HTTP/1.1\r\n" + rest
                    )

    def test_datagrams_and_servers_are_refused(self):
        with self.assertRaisesRegex(OSError, "only HTTP"):
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with self.assertRaisesRegex(OSError, "only HTTP"):
            socket.socket().bind(("127.0.0.1", 0))


if __name__ == "__main__":
    unittest.main()
