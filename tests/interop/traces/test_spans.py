"""Spans of jobs, as the collector has decoded them."""

import json
import os
import secrets
import time
import unittest
import urllib.request


# How the host sends its batches: None or "gzip".
ENCODING = os.environ.get("TRACES_ENCODING")


def submit(path, document, sampled, state=None):
    """Submits a job in a new trace; returns the numbers of the trace and of the caller's span."""
    trace, caller = secrets.token_hex(16), secrets.token_hex(8)
    headers = [("traceparent", f"00-{trace}-{caller}-{'01' if sampled else '00'}")]
    if state is not None:
        headers.append(("tracestate", state))
    call(path, document, headers)
    return trace, caller


def call(path, document, headers=()):
    request = urllib.request.Request(os.environ["GRISTMILL_URL"] + path, json.dumps(document).encode())
    request.add_header("authorization", "Bearer " + os.environ["GRISTMILL_ADMIN_KEY"])
    request.add_header("content-type", "application/json")
    for name, value in headers:
        request.add_header(name, value)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def submit_waiting(path, document):
    """Submits a job in a new sampled trace; returns the number of the trace and the job's id."""
    trace = secrets.token_hex(16)
    parent = ("traceparent", f"00-{trace}-{secrets.token_hex(8)}-01")
    return trace, call(path, document, [parent])["id"]


def spans_of(trace, names):
    """The spans of a trace by name, once all of these names have arrived."""
    end = time.monotonic() + 60
    while True:
        lines = []
        if os.path.exists(os.environ["TRACES_SPANS"]):
            with open(os.environ["TRACES_SPANS"]) as file:
                lines = [json.loads(line) for line in file if line.endswith("\n")]
        found = {line["name"]: line for line in lines if line["trace"] == trace}
        if names <= found.keys():
            return found
        if time.monotonic() > end:
            raise AssertionError(f"{names} expected, found {found}")
        time.sleep(0.1)


class Spans(unittest.TestCase):
    def check(self, operation):
        server = f"POST /v2/{{endpoint}}/{operation}"
        trace, caller = submit(f"/v2/echo/{operation}", {"input": {"a": 1}}, True)
        found = spans_of(trace, {server, "job", "attempt"})
        self.assertEqual(found[server]["kind"], "SPAN_KIND_SERVER")
        self.assertEqual(found[server]["parent"], caller)
        self.assertEqual(found["job"]["parent"], found[server]["id"])
        self.assertEqual(found["attempt"]["parent"], found["job"]["id"])
        self.assertEqual(found["job"]["resource"]["service.name"], "gristmill")
        self.assertEqual(found["job"]["scope"], "gristmill")
        for span in found.values():
            self.assertLessEqual(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
            self.assertNotIn("status", span)
            self.assertNotIn("traceState", span)
            self.assertEqual(span["encoding"], ENCODING)

    def test_run(self):
        self.check("run")

    def test_runsync(self):
        self.check("runsync")

    def test_a_trace_that_is_not_sampled_has_no_span(self):
        trace, _ = submit("/v2/echo/runsync", {"input": {}}, False)
        later, _ = submit("/v2/echo/runsync", {"input": {}}, True)
        spans_of(later, {"job"})
        self.assertEqual(spans_of(trace, set()), {})

    def test_a_failure_has_an_error(self):
        # The handler wants an input of another form.
        trace, _ = submit("/v2/fetch/runsync", {"input": {"url": 1}}, True)
        found = spans_of(trace, {"job", "attempt"})
        self.assertEqual(found["attempt"]["status"]["code"], "STATUS_CODE_ERROR")

    def test_each_span_has_the_state_of_the_trace(self):
        state = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"
        for operation in ("run", "runsync"):
            server = f"POST /v2/{{endpoint}}/{operation}"
            trace, _ = submit(f"/v2/echo/{operation}", {"input": {}}, True, state)
            for span in spans_of(trace, {server, "job", "attempt"}).values():
                self.assertEqual(span.get("traceState"), state, span["name"])
        trace, _ = submit("/v2/echo/runsync", {"input": {}}, True, "not a list")
        for span in spans_of(trace, {"job", "attempt"}).values():
            self.assertNotIn("traceState", span)

    def test_a_large_batch_arrives_whole(self):
        traces = [submit_waiting("/v2/echo/run", {"input": {"n": n}})[0] for n in range(100)]
        for trace in traces:
            self.assertEqual(spans_of(trace, {"job", "attempt"})["job"]["encoding"], ENCODING)

    def test_a_job_that_ends_while_it_waits_has_a_span(self):
        for how in ("cancel", "purge-queue"):
            trace, job = submit_waiting("/v2/paused/run", {"input": {}})
            found = spans_of(trace, {"POST /v2/{endpoint}/run"})
            self.assertNotIn("job", found, "it waits still")
            call("/v2/paused/cancel/" + job if how == "cancel" else "/v2/paused/purge-queue", {})
            found = spans_of(trace, {"job"})
            self.assertEqual(found["job"]["parent"], found["POST /v2/{endpoint}/run"]["id"])
            self.assertNotIn("attempt", found)
            self.assertEqual(found["job"]["status"]["code"], "STATUS_CODE_ERROR")
            self.assertIn("cancelled" if how == "cancel" else "purged", found["job"]["status"]["message"])


if __name__ == "__main__":
    unittest.main()
