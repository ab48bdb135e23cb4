"""Libraries of Python in a real host: HTTP clients, files of packages, the hosted services'
helpers, and a proxy for language models with OpenAI's own client in front."""

import os
import subprocess
import time
import unittest
import urllib.request

import openai
from test_components import call, error, logs, output, run
from upstream import PATIENCE, SECRET, Upstream

URL = os.environ["GRISTMILL_URL"]
LIBRARIES = "python-libraries"


def deploy(name, *options, component=None):
    file = os.path.join(os.environ["GRISTMILL_BUILT"], f"{component or name}.wasm")
    command = [os.environ["GRISTMILL"], "deploy", file, "--name", name, *options]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def setUpModule():
    global upstream
    upstream = Upstream()
    volume = call("/v1/networkvolumes", {"name": "grain", "size": 1})
    at = f"http://{upstream.address}"
    allowed = ["--allow-host", upstream.address]
    deploy(
        LIBRARIES,
        *allowed,
        "--env",
        f"UPSTREAM={at}",
        "--env",
        "LOG_LEVEL=WARNING",
        "--scratch-gb",
        "1",
        "--volume",
        volume["id"],
    )
    reused = ["--env", f"UPSTREAM={at}", "--workers-max", "1", "--reuse", "100"]
    deploy(f"{LIBRARIES}-reused", *allowed, *reused, component=LIBRARIES)
    deploy("python-llm-proxy", *allowed, "--env", f"UPSTREAM_URL={at}/v1")


class Http(unittest.TestCase):
    def test_libraries_work_unmodified(self):
        for op, answer in [("requests", {"a": 1}), ("httpx", {"a": 1}), ("urllib", "abc")]:
            with self.subTest(op):
                self.assertEqual(output(LIBRARIES, op), answer)

    def test_requests_run_at_the_same_time(self):
        for op in ["together-httpx", "together-aiohttp"]:
            with self.subTest(op):
                self.assertEqual(output(LIBRARIES, op), ["met"] * 3)

    def test_request_bodies_are_sent_in_pieces(self):
        for op in ["upload-requests", "upload-httpx"]:
            with self.subTest(op):
                self.assertEqual(output(LIBRARIES, op), "first and second")

    def test_response_bodies_arrive_in_pieces(self):
        job = call(f"/v2/{LIBRARIES}/run", {"input": {"op": "stream"}})
        first = call(f"/v2/{LIBRARIES}/stream/{job['id']}?wait=60000")
        self.assertEqual([chunk["output"] for chunk in first], ["one"])
        self.assertFalse(upstream.released.is_set())
        upstream.released.set()
        rest = []
        deadline = time.monotonic() + 60
        while not rest and time.monotonic() < deadline:
            rest = call(f"/v2/{LIBRARIES}/stream/{job['id']}?wait=60000")
        self.assertEqual([chunk["output"] for chunk in rest], ["two"])

    def test_a_response_that_ends_early_is_an_error(self):
        self.assertIn("Connection", output(LIBRARIES, "cut-off"))

    def test_an_answer_that_a_job_leaves_open_does_not_reach_the_next_job(self):
        for before in range(2):
            self.assertEqual(output(f"{LIBRARIES}-reused", "leave-open"), 200)
            self.assertTrue(upstream.client_left.wait(PATIENCE))
            upstream.client_left.clear()
            self.assertEqual(output(f"{LIBRARIES}-reused", "collect"), before + 1)

    def test_a_refusal_names_the_host(self):
        for op in ["denied-requests", "denied-httpx"]:
            with self.subTest(op):
                said = "does not allow requests to https://example.com"
                self.assertIn(said, output(LIBRARIES, op))
                self.assertIn("--allow-host, or in `[network] allow`", output(LIBRARIES, op))

    def test_a_socket_says_that_there_is_http_only(self):
        self.assertIn("a component has no sockets, only HTTP", output(LIBRARIES, "socket"))


class Sandbox(unittest.TestCase):
    def test_functions_of_other_threads_run(self):
        self.assertEqual(output(LIBRARIES, "threads"), [3, 2, 1, [1, 2], 6])
        self.assertEqual(output(LIBRARIES, "thread"), [1])
        self.assertIn("a component has one thread", output(LIBRARIES, "stuck-thread"))

    def test_basic_config_and_the_environment_set_the_level(self):
        job = run(LIBRARIES, {"op": "log"})
        self.assertEqual(job["output"], 30)  # LOG_LEVEL, over the module's DEBUG
        lines = logs(LIBRARIES, job)
        self.assertIn(("warn", "WARNING of mill: a warning"), lines)
        self.assertFalse([line for line in lines if "a detail" in line[1]])

    def test_files_of_packages_are_there(self):
        self.assertIn("<table>", output(LIBRARIES, "markdown"))
        self.assertEqual(output(LIBRARIES, "resources")[1:], [True, True, True])
        self.assertEqual(output(LIBRARIES, "zones"), "2026-07-01T00:00:00+02:00")

    def test_the_whole_standard_library_can_be_imported(self):
        self.assertEqual(output(LIBRARIES, "late"), "csv")
        # Their machine code is not in the sandbox's Python.
        self.assertEqual(output(LIBRARIES, "modules"), ["bz2", "lzma", "pty", "tty"])

    def test_inputs_have_the_types_of_their_annotations(self):
        order = {
            "id": "12345678-1234-5678-1234-567812345678",
            "due": "2026-01-31T12:00:00+00:00",
            "sacks": [{"grain": "rye", "weight": "1.50"}],
        }
        told = output(LIBRARIES, "order", order=order)
        self.assertEqual(told[:2], ["datetime", "UUID"])
        self.assertEqual(told[2], order | {"sacks": [["rye", "1.50"]]})
        job = run(LIBRARIES, {"op": "order", "order": order | {"due": "tomorrow"}})
        self.assertIn("order.due: expected a datetime such as", job["error"])

    def test_an_output_that_is_too_deep_is_an_error_and_no_trap(self):
        self.assertIn("nested more than 1000 levels", error(LIBRARIES, "too-deep"))

    def test_an_import_of_machine_code_says_so(self):
        told = error(LIBRARIES, "machine-code")
        self.assertIn("Error: pydantic-core has machine code, which a component cannot run", told)
        self.assertIn("(needed by pydantic); use pydantic<2, which is pure Python", told)

    def test_the_hosted_services_package_has_a_hint(self):
        self.assertIn("`import gristmill.runpod as runpod`", error(LIBRARIES, "runpod"))


class Databases(unittest.TestCase):
    def test_a_job_that_is_stopped_in_a_transaction_leaves_no_lock(self):
        self.assertEqual(output(LIBRARIES, "sqlite"), 1)
        stopped = run(LIBRARIES, {"op": "sqlite-spin"}, policy={"executionTimeout": 5000})
        self.assertEqual(stopped["status"], "TIMED_OUT", stopped)
        # The row of the stopped job is rolled back.
        self.assertEqual(output(LIBRARIES, "sqlite"), 2)


class Storage(unittest.TestCase):
    def test_objects_are_uploaded_with_signatures(self):
        bucket = {
            "endpointUrl": f"http://{upstream.address}",
            "accessId": SECRET.access_key,
            "accessSecret": SECRET.secret_key,
        }
        text, kind, is_quoted, big = output(LIBRARIES, "bucket", bucket=bucket)
        self.assertEqual([text, kind, is_quoted], ["flour", "text/plain", True])
        with urllib.request.urlopen(big, timeout=60) as response:
            self.assertEqual(len(response.read()), 9 << 20)
        job = run(LIBRARIES, {"op": "bucket", "bucket": bucket | {"accessSecret": "wrong"}})
        self.assertIn("answered 403", job["error"])
        job = run(LIBRARIES, {"op": "bucket-never-complete", "bucket": bucket})
        self.assertIn("did not complete the upload: InternalError: We encountered", job["error"])
        # The parts are deleted.
        self.assertEqual(upstream.uploads, {})

    def test_files_are_downloaded_to_the_scratch_space(self):
        self.assertEqual(output(LIBRARIES, "download"), "sack.txt")


class LlmProxy(unittest.TestCase):
    def client(self):
        return openai.OpenAI(
            base_url=f"{URL}/v2/python-llm-proxy/openai/v1",
            api_key=os.environ["GRISTMILL_API_KEY"],
            timeout=60,
            max_retries=0,
        )

    def test_the_first_token_arrives_before_the_last_one_is_sent(self):
        messages = [{"role": "user", "content": "How do mills grind?"}]
        stream = self.client().chat.completions.create(model="m", messages=messages, stream=True)
        tokens = []
        for chunk in stream:
            tokens.append(chunk.choices[0].delta.content)
            if len(tokens) == 1:
                # The server sends the second token only after this.
                upstream.released.set()
        self.assertEqual(tokens, ["Slow", " mills"])

    def test_an_error_of_the_server_reaches_the_client(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client().chat.completions.create(model="no-such-model", messages=[])
        self.assertEqual(caught.exception.code, "model_not_found")


if __name__ == "__main__":
    unittest.main()
