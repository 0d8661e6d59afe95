"""A receiver of OTLP/HTTP with the definitions of the project OpenTelemetry: prints each log record and span as a line of JSON.

Arguments: port, and a file whose content, if it exists, is the status of responses.
"""

import http.server
import json
import pathlib
import sys
import threading

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces


def value(any_value):
    return getattr(any_value, any_value.WhichOneof("value"))


def attributes(pairs):
    keys = [pair.key for pair in pairs]
    assert len(keys) == len(set(keys)), f"a repeated key: {keys}"
    return {pair.key: value(pair.value) for pair in pairs}


def log_records(body):
    request = logs.ExportLogsServiceRequest.FromString(body)
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                yield {
                    "signal": "log",
                    "resource": attributes(resource.resource.attributes),
                    "scope": scope.scope.name,
                    "schema": scope.schema_url,
                    "time": record.time_unix_nano,
                    "severity": record.severity_number,
                    "severity_text": record.severity_text,
                    "body": value(record.body),
                    "event": record.event_name,
                    "trace": record.trace_id.hex(),
                    "span": record.span_id.hex(),
                    "flags": record.flags,
                    "attributes": attributes(record.attributes),
                }


def spans(body):
    request = traces.ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "signal": "span",
                    "resource": attributes(resource.resource.attributes),
                    "scope": scope.scope.name,
                    "name": span.name,
                    "kind": span.kind,
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "status": span.status.code,
                    "links": [[link.trace_id.hex(), link.span_id.hex()] for link in span.links],
                    "attributes": attributes(span.attributes),
                }


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = int(STATUS.read_text()) if STATUS.exists() else 200
        if status == 200:
            assert self.headers["Content-Type"] == "application/x-protobuf", self.headers
            read = {"/v1/logs": log_records, "/v1/traces": spans}[self.path]
            with OUTPUT:
                for record in read(body):
                    print(json.dumps(record | {"key": self.headers["X-Key"]}), flush=True)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


# Both signals arrive at the same time.
OUTPUT = threading.Lock()
STATUS = pathlib.Path(sys.argv[2])
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
