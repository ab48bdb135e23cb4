"""Spans of jobs, as the collector has decoded them."""

import json
import os
import secrets
import time
import unittest
import urllib.parse
import urllib.request


# How the batches come: None or "gzip".
ENCODING = os.environ.get("TRACES_ENCODING")
# The receiver of the requests of handlers and of webhooks.
RECEIVER = os.environ["TRACES_RECEIVER"]


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


def read_lines(variable):
    """The complete lines of JSON in a file that an environment variable names."""
    if not os.path.exists(os.environ[variable]):
        return []
    with open(os.environ[variable]) as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def until(what, condition):
    end = time.monotonic() + 60
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within a minute: {what()}")
        time.sleep(0.1)
    return value


def all_spans_of(trace):
    return [line for line in read_lines("TRACES_SPANS") if line["trace"] == trace]


def spans_of(trace, names):
    """The spans of a trace by name, once all of these names have arrived."""

    def arrived():
        found = {line["name"]: line for line in all_spans_of(trace)}
        return (found,) if names <= found.keys() else None

    return until(lambda: f"{names} of {all_spans_of(trace)}", arrived)[0]


def attributes(span):
    """The attributes of a span as a flat object of texts."""
    return {each["key"]: str(next(iter(each["value"].values()))) for each in span["attributes"]}


def call_of(path):
    """The call that the receiver got for this path, which only one test uses."""
    found = until(lambda: f"a call of {path}", lambda: [c for c in read_lines("TRACES_CALLS") if c["path"].startswith(path)])
    return found[0]


def parent_of(span):
    """The header of a call that belongs to this span."""
    return f"00-{span['trace']}-{span['id']}-01"


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

    def check_shared_by(self, endpoint):
        """Runs a job that makes a request and has a webhook; returns its spans and both calls."""
        path = f"/{secrets.token_hex(4)}"
        url = f"{RECEIVER}{path}-asked/secret-path?key=secret-query"
        webhook = f"{RECEIVER}{path}-hook/secret-path?key=secret-query"
        trace, caller = submit(f"/v2/{endpoint}/run", {"input": {"url": url}, "webhook": webhook}, True)
        server = "POST /v2/{endpoint}/run"
        found = spans_of(trace, {server, "job", "attempt", "GET", "webhook"})
        self.assertEqual(found[server]["parent"], caller)
        self.assertEqual(found["GET"]["parent"], found["attempt"]["id"])
        self.assertEqual(found["webhook"]["parent"], found[server]["id"])
        host = urllib.parse.urlsplit(RECEIVER)
        for name, method in (("GET", "GET"), ("webhook", "POST")):
            self.assertEqual(found[name]["kind"], "SPAN_KIND_CLIENT")
            self.assertNotIn("status", found[name])
            about = attributes(found[name])
            self.assertEqual(about["http.request.method"], method)
            self.assertEqual(about["http.response.status_code"], "200")
            self.assertEqual(about["server.address"], host.hostname)
            self.assertEqual(about["server.port"], str(host.port))
        self.assertNotIn("secret", json.dumps(all_spans_of(trace)), "neither a path nor a query is in a span")
        return found, call_of(path + "-asked"), call_of(path + "-hook")

    def test_a_request_and_a_webhook_have_spans_and_their_receivers_get_them_as_parents(self):
        found, asked, hook = self.check_shared_by("fetch-open")
        self.assertEqual(asked["headers"]["traceparent"], parent_of(found["GET"]))
        self.assertEqual(hook["headers"]["traceparent"], parent_of(found["webhook"]))

    def test_without_permission_there_are_spans_but_no_receiver_gets_them(self):
        _, asked, hook = self.check_shared_by("fetch-closed")
        for received in (asked, hook):
            self.assertNotIn("traceparent", received["headers"])

    def test_a_handler_gets_the_span_of_its_attempt_with_the_sampled_flag(self):
        trace, parent = secrets.token_hex(16), secrets.token_hex(8)
        header = ("traceparent", f"00-{trace}-{parent}-01")
        done = call("/v2/playground/runsync", {"input": {"op": "trace"}}, [header])
        attempt = spans_of(trace, {"attempt"})["attempt"]
        self.assertEqual(done["output"], {"traceParent": parent_of(attempt)})

    def test_failed_requests_and_webhooks_have_errors_without_paths_and_queries(self):
        missing = f"{RECEIVER}/missing/secret-path?key=secret-query"
        # No server listens on the first port.
        refused = {"url": "http://127.0.0.1:1/secret-path?key=secret-query"}
        # This answer comes after 2 s.
        late = {"url": f"{RECEIVER}/late/secret-path?key=secret-query", "timeout_ms": 300}
        for asked, status in ((refused, None), (late, None), ({"url": missing}, "404")):
            trace, _ = submit("/v2/fetch-any/run", {"input": asked, "webhook": missing}, True)
            found = spans_of(trace, {"job", "attempt", "GET", "webhook"})
            for span, expected in ((found["GET"], status), (found["webhook"], "404")):
                self.assertEqual(span["status"]["code"], "STATUS_CODE_ERROR")
                self.assertEqual(attributes(span).get("http.response.status_code"), expected)
            self.assertNotIn("secret", json.dumps(all_spans_of(trace)))

    def test_a_retry_adds_a_job_and_an_attempt_to_the_trace(self):
        trace, job = submit_waiting("/v2/playground/run", {"input": {"op": "fail"}})
        first = spans_of(trace, {"POST /v2/{endpoint}/run", "job", "attempt"})
        call("/v2/playground/retry/" + job, {})

        def second():
            spans = all_spans_of(trace)
            names = [span["name"] for span in spans]
            return spans if names.count("job") == names.count("attempt") == 2 else None

        spans = until(lambda: f"two jobs and two attempts in {all_spans_of(trace)}", second)
        jobs = [span for span in spans if span["name"] == "job"]
        self.assertEqual({span["parent"] for span in jobs}, {first["POST /v2/{endpoint}/run"]["id"]})
        self.assertEqual({attributes(span)["messaging.message.id"] for span in jobs}, {job})
        attempts = [span for span in spans if span["name"] == "attempt"]
        self.assertEqual({span["parent"] for span in attempts}, {span["id"] for span in jobs})
        self.assertEqual(len({span["id"] for span in spans}), len(spans))
        self.assertEqual([attributes(span)["error.type"] for span in attempts], ["handler", "handler"])
        self.assertLess(int(jobs[0]["endTimeUnixNano"]), int(jobs[1]["startTimeUnixNano"]))


if __name__ == "__main__":
    unittest.main()
