"""Runs the tests of a module two at a time: each waits for builds of components, which use one core,
or for a host. A module uses it with `from side_by_side import load_tests`. Its tests must not
change what they share: the environment and the umask of this process."""

import unittest
from concurrent.futures import ThreadPoolExecutor

AT_ONCE = 2


class _SideBySide(unittest.TestSuite):
    def run(self, result, debug=False):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for ended in [pool.submit(test, result) for test in _each(self)]:
                ended.result()
        return result


def _each(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _each(test)
        else:
            yield test


def load_tests(_loader, tests, _pattern):
    return _SideBySide(tests)
