"""A collector of traces: decodes each batch with the official classes, and writes a line of JSON per span."""

import gzip
import json
import os
import sys
from http.server import BaseHTTPRequestHandler

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from serving import serve


class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path != "/v1/traces" or self.headers["content-type"] != "application/x-protobuf":
            self.send_error(400)
            return
        encoding = self.headers["content-encoding"]
        if encoding == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        with open(os.environ["TRACES_SPANS"], "a") as spans:
            for batch in request.resource_spans:
                resource = {a.key: a.value.string_value for a in batch.resource.attributes}
                for scope in batch.scope_spans:
                    for span in scope.spans:
                        line = MessageToDict(span)
                        line |= {
                            "resource": resource,
                            "encoding": encoding,
                            "scope": scope.scope.name,
                            "trace": span.trace_id.hex(),
                            "id": span.span_id.hex(),
                            "parent": span.parent_span_id.hex(),
                        }
                        print(json.dumps(line), file=spans)
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(ExportTraceServiceResponse().SerializeToString())

    def log_message(self, *_):
        pass


serve(Collector, sys.argv[1])
