"""A server for the requests that components send themselves: GET of one of its bodies, and POST to /echo, which is
answered with the body of the request while that comes. Prints its address, and runs until it is ended."""

import http.server

BODIES = {f"/{name}": f"line {name} of the poem".encode() for name in "abcd"}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply(BODIES.get(self.path))

    def do_POST(self):
        """Answers piece by piece: a component may wait for the answer before it sends its request's body."""
        if self.path != "/echo" or self.headers["Transfer-Encoding"] != "chunked":
            return self.reply(None)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        size = None
        while size != 0:
            line = self.rfile.readline()
            size = int(line, 16)
            self.wfile.write(line + self.rfile.read(size) + self.rfile.readline())

    def reply(self, body):
        self.send_response(405 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
