"""`logging` in a component."""

import contextlib
import io
import logging
import unittest
from typing import Any

from gristmill import _logging
from gristmill.testing import TestContext


class Logging(unittest.TestCase):
    def setUp(self) -> None:
        root = logging.getLogger()
        before = root.handlers[:], root.level, logging.basicConfig
        self.addCleanup(self.restore, *before)
        root.handlers = []
        _logging.install()

    def restore(self, handlers: Any, level: int, configure: Any) -> None:
        root = logging.getLogger()
        root.handlers, logging.basicConfig = handlers, configure
        root.setLevel(level)

    def logged(self, *call: Any) -> list[tuple[str, str]]:
        """The lines of the log of a job that makes this call."""
        ctx = TestContext()
        ctx.run(lambda job: logging.getLogger("mill").warning(*call), 1)
        return ctx.logs

    def test_records_go_to_the_log_of_the_job(self) -> None:
        self.assertEqual(self.logged("%d sacks", 2), [("warn", "mill: 2 sacks")])

    def test_a_wrong_call_does_not_fail_the_job(self) -> None:
        class Broken:
            def __str__(self) -> str:
                raise RuntimeError("no text")

        for call in [("%d sacks", "two"), ("%s and %s", 1), ("%s", Broken())]:
            with contextlib.redirect_stderr(io.StringIO()) as shown:
                self.assertEqual(self.logged(*call), [])
            # With the place of the call, as everywhere in Python.
            self.assertIn("--- Logging error ---", shown.getvalue())
            self.assertIn("test_logging.py", shown.getvalue())

    def test_records_without_a_job_are_printed(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            logging.getLogger("mill").warning("no job")
        self.assertEqual(shown.getvalue(), "mill: no job\n")

    def test_a_configuration_may_name_no_file_and_no_stream(self) -> None:
        for settings in [
            {"filename": None},
            {"stream": None},
            {"handlers": None, "stream": None},
            {"filename": None, "filemode": "a"},
        ]:
            with self.subTest(**settings):
                logging.basicConfig(format="%(message)s!", force=True, **settings)
                self.assertEqual(self.logged("grind"), [("warn", "grind!")])

    def test_a_configuration_with_a_stream_writes_to_it(self) -> None:
        stream = io.StringIO()
        logging.basicConfig(stream=stream, format="%(message)s")
        self.assertEqual(self.logged("grind"), [])
        self.assertEqual(stream.getvalue(), "grind\n")


if __name__ == "__main__":
    unittest.main()
