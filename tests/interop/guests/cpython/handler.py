"""Runs a module of CPython's own tests, which are on the volume, and returns what failed."""

import io
import os
import sys
import sysconfig
import traceback
import unittest

LIBRARY = "/workspace/lib"
"""Where the package `test` is."""

WORK = "/workspace/work"
"""The directory in which the tests create their files."""


class Result(unittest.TestResult):
    """Names and last lines of the errors of what failed."""

    def __init__(self):
        super().__init__()
        self.failed = {}
        self.skips = 0

    def _note(self, test, error):
        lines = traceback.format_exception_only(error[0], error[1])
        self.failed[test.id()] = lines[-1].strip()[:300]

    def addFailure(self, test, error):
        self._note(test, error)

    def addError(self, test, error):
        self._note(test, error)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self._note(test, error)

    def addUnexpectedSuccess(self, test):
        self.failed[test.id()] = "an expected failure has passed"

    def addSkip(self, test, reason):
        self.skips += 1


def handler(job):
    module = job["input"]["module"]
    sys.path.insert(0, LIBRARY)
    # Options of the build of this Python, whose quotes `test.support` cannot read.
    sysconfig.get_config_vars()["CONFIG_ARGS"] = ""
    # The tests look up the user and use the temporary directory.
    os.environ.update(HOME=WORK, TMPDIR=WORK)
    os.makedirs(WORK, exist_ok=True)
    os.chdir(WORK)
    # Their warnings and progress are not the job's log.
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    result = Result()
    unittest.defaultTestLoader.loadTestsFromName(module).run(result)
    return {"run": result.testsRun, "skipped": result.skips, "failed": result.failed}
