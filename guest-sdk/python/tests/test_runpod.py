"""The names of the hosted services' worker."""

import os
import unittest
from typing import Any
from unittest import mock

import gristmill.runpod as runpod
from gristmill.runpod.serverless.utils import rp_cleanup, rp_debugger, rp_upload
from gristmill.runpod.serverless.utils.rp_validator import validate
from gristmill.testing import TestContext


class Validator(unittest.TestCase):
    def test_inputs_are_checked_and_completed(self) -> None:
        schema: dict[str, Any] = {
            "text": {"type": str, "required": True},
            "scale": {"type": float, "required": False, "default": 1.5},
            "count": {
                "type": int,
                "required": False,
                "default": 1,
                "constraints": lambda count: 0 < count < 10,
            },
        }
        for value, expected in [
            ({"text": "a"}, {"text": "a", "scale": 1.5, "count": 1}),
            ({"text": "a", "scale": 2}, {"text": "a", "scale": 2.0, "count": 1}),
            ({}, ["text is a required input."]),
            ({"text": "a", "x": 1}, ["Unexpected input. x is not a valid input option."]),
            ({"text": 5}, ["text should be <class 'str'> type, not <class 'int'>."]),
            ({"text": "a", "count": 10}, ["count does not meet the constraints."]),
        ]:
            with self.subTest(value=value):
                key = "errors" if isinstance(expected, list) else "validated_input"
                self.assertEqual(validate(value, schema), {key: expected})

    def test_a_broken_schema_is_an_error(self) -> None:
        self.assertIn("is not a dictionary", validate({}, {"a": "x"})["errors"][0])
        errors = validate({}, {"a": {"required": False}})["errors"]
        self.assertEqual(
            errors,
            ["Schema error, missing type for a.", "Schema error, missing default value for a."],
        )


class Logger(unittest.TestCase):
    def lines(self, environment: dict[str, str]) -> list[tuple[str, str]]:
        def handler(job: dict[str, Any]) -> None:
            log = runpod.RunPodLogger()
            log.debug("a detail")
            log.warn("careful", job["id"])
            log.error("x" * 5000, request_id="another")
            log.secret("key", "abcd")

        ctx = TestContext()
        with mock.patch.dict(os.environ, environment):
            ctx.run(handler, 1)
        return [(level, line[:40]) for level, line in ctx.logs]

    def test_lines_have_their_levels(self) -> None:
        lines = self.lines({})
        self.assertEqual([level for level, _ in lines], ["debug", "warn", "error", "info"])
        self.assertEqual(lines[1], ("warn", "careful"))
        self.assertTrue(lines[2][1].startswith("another | xxx"))
        self.assertEqual(lines[3][1], "key: a**d")

    def test_the_environment_sets_the_level(self) -> None:
        self.assertEqual(len(self.lines({"RUNPOD_DEBUG_LEVEL": "ERROR"})), 1)
        self.assertEqual(len(self.lines({"RUNPOD_LOG_LEVEL": "4"})), 2)

    def test_a_wrong_level_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "is none of NOTSET, TRACE"):
            runpod.RunPodLogger().set_level("LOUD")


class Rest(unittest.TestCase):
    def test_absent_parts_say_so(self) -> None:
        with self.assertRaisesRegex(AttributeError, "nothing that calls the hosted services"):
            runpod.Endpoint

    def test_an_upload_needs_credentials(self) -> None:
        with self.assertRaisesRegex(ValueError, "endpointUrl, accessId, accessSecret is missing"):
            rp_upload.upload_in_memory_object("a", b"")

    def requests_of_an_upload(self, completion: bytes) -> list[str]:
        """The requests of an upload in parts whose last request has this answer, and its error."""
        sent: list[str] = []

        def send(
            bucket: Any, method: str, key: str, query: dict[str, str], *more: Any
        ) -> tuple[dict[str, str], bytes]:
            sent.append(f"{method} {','.join(query)}")
            if "uploads" in query:
                return {}, b"<R><UploadId>u</UploadId></R>"
            if method == "DELETE":
                raise OSError("the object storage answered 404 to DELETE: NoSuchUpload")
            return {"etag": "t"}, completion if method == "POST" else b""

        bucket = {"endpointUrl": "http://s3.example", "accessId": "a", "accessSecret": "s"}
        with (
            mock.patch.object(rp_upload._Bucket, "send", send),
            mock.patch.object(rp_upload, "PART_BYTES", 4),
        ):
            try:
                rp_upload.upload_in_memory_object("sack", b"flour", bucket, "sacks")
            except OSError as error:
                sent.append(str(error))
        return sent

    def test_an_upload_that_the_storage_does_not_complete_is_an_error(self) -> None:
        begin = ["POST uploads", *["PUT partNumber,uploadId"] * 2, "POST uploadId"]
        error = b"<Code>InternalError</Code><Message>Please try again.</Message>"
        for start in (b"", b'  \n<?xml version="1.0" encoding="UTF-8"?>\n\n'):
            for root in (b"<Error>", b"<Error xmlns='http://s3'>"):
                failed = self.requests_of_an_upload(start + root + error + b"</Error>")
                reason = "did not complete the upload: InternalError: Please try again."
                ends = ["DELETE uploadId", f"the object storage {reason}"]
                self.assertEqual(failed, begin + ends)
        *_, reason = self.requests_of_an_upload(b"  ")
        self.assertEqual(reason, "the object storage did not confirm the upload: '  '")
        for completed in (b"<Result><ETag>Error</ETag></Result>", b""):
            self.assertEqual(self.requests_of_an_upload(completed), begin)

    def test_cleaning_nothing_is_no_error(self) -> None:
        rp_cleanup.clean(["no-such-directory-of-the-tests"])

    def test_checkpoints_have_durations(self) -> None:
        with rp_debugger.LineTimer("grind"):
            pass
        [point] = rp_debugger.get_debugger_output()["timestamps"]
        self.assertEqual(point["name"], "grind")
        self.assertGreaterEqual(point["duration_ms"], 0)


if __name__ == "__main__":
    unittest.main()
