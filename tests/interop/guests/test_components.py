"""Components of both SDKs in a real host, which `run.sh` started and deployed them to."""

import json
import os
import subprocess
import unittest
import urllib.error
import urllib.request

URL = os.environ["GRISTMILL_URL"]
FEATURES = ["python-features", "quickjs-features", "starlingmonkey-features"]
JAVASCRIPT = FEATURES[1:]


def call(path, body=None):
    request = urllib.request.Request(
        URL + path,
        data=body and json.dumps(body).encode(),
        headers={
            "authorization": "Bearer " + os.environ["GRISTMILL_API_KEY"],
            "content-type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def run(endpoint, job_input, **more):
    return call(f"/v2/{endpoint}/runsync", {"input": job_input, **more})


def output(endpoint, op, /, **more):
    job = run(endpoint, {"op": op, **more})
    assert job["status"] == "COMPLETED", job
    return job.get("output")


def error(endpoint, op):
    job = run(endpoint, {"op": op})
    assert job["status"] == "FAILED", job
    return job["error"]


def logs(endpoint, job):
    """The lines of a job's log, as (level, message)."""
    command = [os.environ["GRISTMILL"], "logs", endpoint, "--job", job["id"], "--json"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [(line["level"], line["line"]) for line in map(json.loads, lines)]


class Everywhere(unittest.TestCase):
    """Behaviour that is the same in every language."""

    def test_one_handler_in_three_languages(self):
        inputs = [
            {"prompt": "  Grüße,\n world… 3.5€ under_score!", "max_tokens": 7},
            {"prompt": ""},
            {"prompt": "a b", "max_tokens": 0},
            {"prompt": "slow mills", "delay_ms": 5, "max_tokens": None},
        ]
        for job_input in inputs:
            results = []
            for language in ["rust", "python", "javascript"]:
                endpoint = f"{language}-token-stream"
                job = run(endpoint, job_input)
                chunks = call(f"/v2/{endpoint}/stream/{job['id']}?from=0")
                results.append((job["status"], job.get("output"), chunks))
            self.assertEqual(results[0][0], "COMPLETED")
            self.assertEqual(results[1], results[0], job_input)
            self.assertEqual(results[2], results[0], job_input)

    def test_a_wrong_input_is_named(self):
        for language in ["rust", "javascript"]:
            job = run(f"{language}-token-stream", {"prompt": 5})
            self.assertEqual(job["status"], "FAILED")
            self.assertIn("prompt: ", job["error"])
        # The component has the schema of its annotations, so the submission is refused.
        with self.assertRaises(urllib.error.HTTPError) as refused:
            run("python-token-stream", {"prompt": 5})
        self.assertEqual(refused.exception.code, 400)
        error = json.load(refused.exception)["error"]
        self.assertEqual(error, "`input.prompt` must be a string (`type`), not 5")

    def test_each(self):
        for endpoint in FEATURES:
            with self.subTest(endpoint):
                self.facts(endpoint)
                self.streams(endpoint)
                self.fails(endpoint)
                self.calls(endpoint)

    def test_a_handler_chooses_whether_and_when_its_job_runs_again(self):
        # Without the wish the job would wait for ten minutes.
        policy = {"retry": {"maxAttempts": 3, "initialDelayMs": 600_000}}
        for endpoint in FEATURES:
            with self.subTest(endpoint):
                again = run(endpoint, {"op": "retry-after"}, policy=policy)
                self.assertEqual((again["status"], again.get("output")), ("COMPLETED", 2), again)
                ended = run(endpoint, {"op": "never-retry"}, policy=policy)
                self.assertEqual(ended["status"], "FAILED", ended)
                self.assertEqual(ended["error"], "the wheel is stuck in attempt 1")

    def calls(self, endpoint):
        called = "rust-token-stream"
        value = {"prompt": "slow mills"}
        expected = run(called, value)["output"]
        self.assertEqual(output(endpoint, "call", endpoint=called, value=value), expected)
        key = {"endpoint": called, "value": value, "key": endpoint}
        self.assertEqual(output(endpoint, "call", **key), expected)
        # Without a key the calls have nothing in common.
        for text in ["rye", "oat"]:
            other = {"prompt": text}
            unnamed = output(endpoint, "call", endpoint=called, value=other, key=None)
            self.assertEqual(unnamed, run(called, other)["output"])
        job = output(endpoint, "submit", endpoint=called, value=value)
        self.assertRegex(job, "^call1-")
        for wrong, kind, status in [
            ({"endpoint": endpoint, "value": value}, "denied", None),
            ({"endpoint": called, "value": 1}, "invalid-request", None),
            ({"endpoint": called, "value": {"prompt": 5}}, "failed", "FAILED"),
        ]:
            refused = output(endpoint, "call", **wrong)
            self.assertEqual(refused[:2], [kind, status], refused)

    def facts(self, endpoint):
        self.assertEqual(output(endpoint, "facts"), [True, endpoint, 1, True, False])
        self.assertEqual(output(endpoint, "env"), "stone")
        self.assertEqual(output(endpoint, "async"), [2, 1])
        self.assertEqual(output(endpoint, "http"), "denied")
        self.assertEqual(output(endpoint, "emit"), "invalid-json")
        self.assertNotEqual(output(endpoint, "random"), output(endpoint, "random"))
        value = {"é": [None, True, 1.5, "😀", {}]}
        self.assertEqual(output(endpoint, "echo", value=value), value)
        s3 = {
            "accessId": "a",
            "accessSecret": "s",
            "bucketName": "sacks",
            "endpointUrl": "https://example.com",
        }
        self.assertEqual(run(endpoint, {"op": "s3"}, s3Config=s3)["output"], "sacks")
        self.assertEqual(output(endpoint, "surrogate"), "\udc00")
        nested = json.dumps(output(endpoint, "deep"))
        self.assertEqual(nested.strip("[]"), "")

    def test_an_instance_is_started_once_and_ends_when_it_says_so(self):
        for endpoint in FEATURES:
            with self.subTest(endpoint):
                # Each job has an instance of its own, without `--reuse`.
                self.assertEqual([output(endpoint, "count") for _ in range(2)], [[1, 1], [1, 1]])
                reusing = f"{endpoint}-reused"
                for _ in range(2):
                    self.assertEqual(output(reusing, "count"), [1, 1])
                    self.assertEqual(output(reusing, "count"), [1, 2])
                    self.assertEqual(output(reusing, "refresh"), {"ground": [1, 3]})

    def streams(self, endpoint):
        job = run(endpoint, {"op": "stream"})
        self.assertEqual(job["output"], [{"grain": 1}, "flour"])
        chunks = call(f"/v2/{endpoint}/stream/{job['id']}?from=0")
        self.assertEqual([chunk["output"] for chunk in chunks], job["output"])
        self.assertEqual(chunks[1]["metrics"]["sacks"], 2)
        job = run(endpoint, {"op": "broken-stream"})
        self.assertEqual(job["status"], "FAILED")
        self.assertIn("no water", job["error"])
        chunks = call(f"/v2/{endpoint}/stream/{job['id']}?from=0")
        self.assertEqual([chunk["output"] for chunk in chunks], [1])

    def fails(self, endpoint):
        self.assertEqual(
            error(endpoint, "invalid"), 'invalid input: no flour (details: {"sacks":0})'
        )
        self.assertEqual(error(endpoint, "failed"), "the wheel is stuck")
        self.assertEqual(error(endpoint, "error"), '{"code":7}')
        self.assertEqual(run(endpoint, {"op": "error"})["output"], {"rest": 1})
        self.assertIn("output has no JSON form: ", error(endpoint, "nan"))

    def test_levels_reach_the_log(self):
        for endpoint in FEATURES:
            with self.subTest(endpoint):
                lines = logs(endpoint, run(endpoint, {"op": "log"}))
                for level in ["trace", "debug", "info", "warn", "error"]:
                    self.assertIn((level, f"at {level}"), lines)
                self.assertTrue(any(message.startswith("printed") for _, message in lines), lines)
                self.assertIn(("warn", "complained"), lines)
                # A line of the log that looks like one of a stack.
                if endpoint in JAVASCRIPT:
                    self.assertIn(("warn", "bundle.js:20 is slow"), lines)
                messages = [message for _, message in lines]
                self.assertTrue(any(message.startswith("lone ") for message in messages), lines)

    def test_only_a_handler_with_an_init_exports_one(self):
        for name, has_init in [
            *((name, True) for name in FEATURES),
            ("python-sql", False),
            ("javascript-markdown", False),
        ]:
            document = subprocess.run(
                [os.environ["GRISTMILL"], "handlers", "get", name, "--json"],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            self.assertEqual("gristmill:handler/lifecycle@0.1.0" in document, has_init, name)


class Run(unittest.TestCase):
    """Without a host: `gristmill run`."""

    def gristmill(self, name, op):
        file = os.path.join(os.environ["GRISTMILL_BUILT"], name + ".wasm")
        command = [os.environ["GRISTMILL"], "run", file, "--input", json.dumps({"op": op})]
        return subprocess.run(command, capture_output=True, text=True)

    def test_chunks_and_progress(self):
        for name in ["python-features", "quickjs-features"]:
            done = self.gristmill(name, "stream")
            self.assertEqual((done.returncode, done.stdout), (0, '{"grain":1}\n"flour"\n'), done)
            self.assertIn('progress: {"percent":50}', done.stderr)

    def test_a_failure(self):
        done = self.gristmill("quickjs-features", "failed")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("the wheel is stuck", done.stderr)


class Python(unittest.TestCase):
    def test_integers_may_have_more_than_64_bits(self):
        self.assertEqual(output("python-features", "echo", value=2**70 + 1), 2**70 + 1)

    def test_an_exception_is_told_and_its_traceback_logged(self):
        job = run("python-features", {"op": "raise"})
        self.assertEqual(job["error"], "KeyError: 'flour'")
        lines = logs("python-features", job)
        self.assertIn(("error", "KeyError: 'flour'"), lines)
        # With the source line, although the sandbox does not have the source file.
        self.assertTrue(
            any('"raise": lambda job: {}["flour"]' in message for _, message in lines), lines
        )

    def test_logging_goes_to_the_log(self):
        lines = logs("python-features", run("python-features", {"op": "log"}))
        self.assertIn(("warn", "mill: through logging"), lines)
        # A wrong call of `logging` is reported, and does not fail the job.
        self.assertTrue(any("Logging error" in message for _, message in lines), lines)
        self.assertIn(("info", "printed"), lines)

    def test_exit_is_no_trap(self):
        self.assertEqual(error("python-features", "exit"), "SystemExit: 2")

    def test_the_standard_library_loads_what_it_needs(self):
        self.assertEqual(output("python-features", "year"), 2026)

    def test_a_late_import_of_an_unknown_package_says_what_to_do(self):
        self.assertIn("import it at the top", error("python-features", "lazy"))

    def test_a_library_works(self):
        sql = {"sql": "SELECT IFNULL(a, `b`) FROM t", "from": "mysql", "to": "postgres"}
        self.assertEqual(
            run("python-sql", sql)["output"], {"statements": ['SELECT\n  COALESCE(a, "b")\nFROM t']}
        )


class RunPod(unittest.TestCase):
    """Public handlers for the hosted services' worker, with another import: see runpod_workers.py."""

    def test_they_run(self):
        self.assertEqual(run("runpod-simple", {"name": "Mill"})["output"], "Hello Mill!")
        self.assertEqual(run("runpod-starter", {})["output"], "Hello, World!")
        job = run("runpod-concurrent", {"a": 1})
        self.assertEqual(job["output"], {"id": job["id"], "input": {"a": 1}})

    def test_the_environment_names_the_endpoint(self):
        self.assertEqual(output("python-features", "runpod-environment"), "python-features")


class JavaScript(unittest.TestCase):
    def test_an_error_is_told_and_its_stack_logged(self):
        for endpoint in JAVASCRIPT:
            job = run(endpoint, {"op": "raise"})
            self.assertEqual(job["error"], "RangeError: no water")
            messages = [message for _, message in logs(endpoint, job)]
            self.assertIn("RangeError: no water", messages)
            self.assertIn("caused by Error: drought", messages)
            # The handler's own lines, and no others: not those of the bundle, nor of the SDK.
            frames = [message for message in messages if ".js:" in message]
            self.assertTrue(frames, messages)
            for frame in frames:
                self.assertRegex(frame, r"[( @]handler\.js:\d+\)?$")

    def test_values_are_shown(self):
        for endpoint in JAVASCRIPT:
            self.assertIn(
                ("info", 'printed {"sacks":2}'), logs(endpoint, run(endpoint, {"op": "log"}))
            )

    def test_a_timer_does_not_overtake_what_is_ready(self):
        for endpoint in JAVASCRIPT:
            self.assertEqual(output(endpoint, "race"), "won")

    def test_several_promises_are_any_iterable(self):
        for endpoint in JAVASCRIPT:
            with self.subTest(endpoint):
                settled = [[2, 1], ["no flour", "no water"], 1, 1]
                self.assertEqual(output(endpoint, "several"), settled)

    def test_the_log_has_each_error_of_several_promises(self):
        for endpoint in JAVASCRIPT:
            with self.subTest(endpoint):
                job = run(endpoint, {"op": "none-of-several"})
                self.assertRegex(job["error"], "^AggregateError: ")
                messages = [message for _, message in logs(endpoint, job)]
                self.assertIn("one of them: Error: no flour", messages)
                self.assertIn("one of them: RangeError: no water", messages)

    def test_a_generator_tidies_up_to_the_end(self):
        for endpoint in JAVASCRIPT:
            with self.subTest(endpoint):
                self.assertEqual(output(endpoint, "tidied"), ["stopped", "swept"])
                job = run(endpoint, {"op": "tidy-stream"})
                self.assertEqual(job["error"], "no flour")
                lines = [line for line in logs(endpoint, job) if line[0] == "info"]
                self.assertEqual(lines, [("info", "stopped"), ("info", "swept")])

    def test_text_is_utf_8(self):
        for endpoint in JAVASCRIPT:
            self.assertEqual(output(endpoint, "text", value="Grüße 😀"), "Grüße 😀")

    def test_waiting_for_nothing_fails(self):
        self.assertIn("nothing settles", error("quickjs-features", "stuck"))
        self.assertEqual(error("quickjs-features", "late"), "Error: too late")

    def test_a_timer_that_a_job_leaves_does_not_reach_the_next_job(self):
        for endpoint in JAVASCRIPT:
            with self.subTest(endpoint):
                reusing = f"{endpoint}-reused"
                output(reusing, "refresh")
                self.assertEqual(output(reusing, "leave"), [1, 1])
                # It waits for longer than the timer.
                job = run(reusing, {"op": "sleep"})
                self.assertEqual(call(f"/v2/{reusing}/stream/{job['id']}?from=0"), [], job)
                # The instance with the timer has ended; that of `sleep` has not.
                self.assertEqual((job["output"], output(reusing, "count")), ([1, 1], [1, 2]))
                output(reusing, "refresh")

    def test_a_library_works(self):
        job = run("javascript-markdown", {"markdown": "# Mill\n\n*Slow*."})
        self.assertEqual(job["output"]["headings"], [{"depth": 1, "text": "Mill"}])
        self.assertEqual(job["output"]["html"], "<h1>Mill</h1>\n<p><em>Slow</em>.</p>\n")


if __name__ == "__main__":
    unittest.main()
