"""A server on a free port of the loopback interface, which writes its URL to a file."""

import os
from http.server import HTTPServer


def serve(handler, address_file):
    server = HTTPServer(("127.0.0.1", 0), handler)
    with open(address_file + ".new", "w") as file:
        file.write(f"http://127.0.0.1:{server.server_port}")
    os.rename(address_file + ".new", address_file)
    server.serve_forever()
