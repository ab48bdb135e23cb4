"""The server that handlers of the tests call. It shows that bodies travel in pieces and that
requests run at the same time: it waits for what can only happen then."""

import contextlib
import hashlib
import http.server
import re
import threading
import urllib.parse
from datetime import datetime

from botocore.auth import SIGV4_TIMESTAMP, S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

# Longer than any step of a test, and shorter than the tests' own limits.
PATIENCE = 30
SECRET = Credentials("key-id", "key-secret")


class Upstream(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_port}"
        self.first_piece_read = threading.Event()
        self.released = threading.Event()
        self.client_left = threading.Event()
        self.meeting = threading.Barrier(3)
        self.objects = {}
        self.uploads = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def log_message(self, *arguments):
        pass

    def pieces(self):
        """The pieces of the request's body, as they arrive."""
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            yield self.rfile.read(int(self.headers.get("content-length") or 0))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def answer(self, body, status=200, kind="text/plain", **headers):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def begin_chunks(self, kind="text/plain"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def handle_any(self):
        path = urllib.parse.urlsplit(self.path).path
        if path.startswith("/sacks/"):
            self.bucket(path)
        elif path == "/read":
            self.read_in_pieces()
        elif path == "/was-read":
            found = self.server.first_piece_read.wait(PATIENCE)
            self.server.first_piece_read.clear()
            self.answer(b" and second" if found else b" too late")
        elif path == "/meet":
            try:
                self.server.meeting.wait(PATIENCE)
                self.answer(b"met")
            except threading.BrokenBarrierError:
                self.answer(b"alone", 500)
        elif path == "/lines":
            self.begin_chunks()
            self.chunk(b"one\n")
            released = self.server.released.wait(PATIENCE)
            self.server.released.clear()
            self.chunk(b"two\n" if released else b"too late\n")
            self.chunk(b"")
        elif path == "/endless":
            self.begin_chunks()
            self.chunk(b"one\n")
            with contextlib.suppress(OSError):
                self.rfile.read(1)
            self.server.client_left.set()
            self.close_connection = True
        elif path == "/cut-off":
            self.begin_chunks()
            self.chunk(b"a part")
            self.close_connection = True
            self.connection.shutdown(2)
        elif path == "/file":
            self.answer(b"flour", content_disposition='attachment; filename="sack.txt"')
        elif path == "/echo":
            self.answer(b"".join(self.pieces()))
        elif path == "/v1/chat/completions":
            self.complete()
        else:
            self.answer(b"", 404)

    do_GET = do_POST = do_PUT = do_DELETE = handle_any

    def read_in_pieces(self):
        whole = b""
        for piece in self.pieces():
            whole += piece
            self.server.first_piece_read.set()
        self.server.first_piece_read.clear()
        self.answer(whole)

    def complete(self):
        """Two tokens; the second one when the client of the test has the first."""
        asked = b"".join(self.pieces())
        if b'"no-such-model"' in asked:
            error = b'{"message":"no such model","type":"not_found_error","code":"model_not_found"}'
            self.answer(b'{"error":%b}' % error, 404, "application/json")
            return
        self.begin_chunks("text/event-stream")
        self.chunk(token("Slow"))
        released = self.server.released.wait(PATIENCE)
        self.server.released.clear()
        self.chunk(token(" mills" if released else " too late"))
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def bucket(self, path):
        """Object storage that checks signatures with the classes of AWS."""
        body = b"".join(self.pieces())
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query, True))
        if not self.is_signed(body, query):
            self.answer(b"SignatureDoesNotMatch", 403)
        elif self.command == "GET":
            kind, content = self.server.objects[path]
            self.answer(content, kind=kind)
        elif self.command == "POST" and "uploads" in query:
            self.server.uploads["u/1"] = {}
            self.answer(b"<R xmlns='http://s3'><UploadId>u/1</UploadId></R>")
        elif self.command == "PUT" and "uploadId" in query:
            self.server.uploads[query["uploadId"]][query["partNumber"]] = body
            self.answer(b"", etag='"tag%s"' % query["partNumber"])
        elif self.command == "DELETE":
            del self.server.uploads[query["uploadId"]]
            self.answer(b"", 204)
        elif self.command == "POST" and path.endswith("/never-complete"):
            # S3 has sent the status when it finds the error.
            why = b"<Code>InternalError</Code><Message>We encountered an internal error.</Message>"
            self.answer(b'  <?xml version="1.0" encoding="UTF-8"?>\n<Error>%b</Error>' % why)
        elif self.command == "POST":
            parts = self.server.uploads.pop(query["uploadId"])
            listed = re.findall(rb'<PartNumber>(\d+)</PartNumber><ETag>"tag\1"</ETag>', body)
            whole = b"".join(parts[number.decode()] for number in listed)
            self.server.objects[path] = ("", whole)
            self.answer(b"<R/>")
        else:
            self.server.objects[path] = (self.headers["content-type"], body)
            self.answer(b"")

    def is_signed(self, body, query):
        url = f"http://{self.headers['host']}{self.path}"
        if "X-Amz-Signature" in query:
            now = query["X-Amz-Date"]
            bare = f"http://{self.headers['host']}{urllib.parse.urlsplit(self.path).path}"
            signer, request = (
                S3SigV4QueryAuth(SECRET, "s3", "us-east-1", 604800),
                AWSRequest("GET", bare),
            )
        else:
            now = self.headers["x-amz-date"]
            if self.headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
                return False
            signed = re.search(r"SignedHeaders=([^,]+)", self.headers["authorization"])[1].split(
                ";"
            )
            headers = {name: self.headers[name] for name in signed if name != "host"}
            signer, request = (
                S3SigV4Auth(SECRET, "s3", "us-east-1"),
                AWSRequest(self.command, url, headers, body),
            )
        request.context["timestamp"] = now
        datetime.strptime(now, SIGV4_TIMESTAMP)
        if isinstance(signer, S3SigV4QueryAuth):
            return query["X-Amz-Signature"] == presigned(signer, request, query)
        canonical = signer.canonical_request(request)
        signature = signer.signature(signer.string_to_sign(request, canonical), request)
        return self.headers["authorization"].endswith(f"Signature={signature}")


def presigned(signer, request, query):
    """The signature that AWS's class makes for this query."""
    rest = {name: value for name, value in query.items() if name != "X-Amz-Signature"}
    request.url += "?" + "&".join(
        f"{name}={urllib.parse.quote(value, safe='-_.~')}" for name, value in rest.items()
    )
    canonical = signer.canonical_request(request)
    return signer.signature(signer.string_to_sign(request, canonical), request)


def token(text):
    choice = f'{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}'
    head = '"id":"c","object":"chat.completion.chunk","created":1,"model":"m"'
    return f'data: {{{head},"choices":[{choice}]}}\n\n'.encode()
