"""Answers the requests of handlers and receives webhooks; writes a line of JSON per call."""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler

from serving import serve


class Receiver(BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        call = {"method": self.command, "path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()}}
        with open(os.environ["TRACES_CALLS"], "a") as calls:
            calls.write(json.dumps(call) + "\n")
        # The path says which status the answer has, and whether it comes too late.
        if self.path.startswith("/late"):
            time.sleep(2)
        self.send_response(404 if self.path.startswith("/missing") else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


serve(Receiver, sys.argv[1])
