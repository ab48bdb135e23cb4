"""The hints beside exceptions."""

import errno
import unittest
from unittest import mock

from gristmill import _report


class Hints(unittest.TestCase):
    def test_a_missing_file_has_the_hint_of_its_place(self) -> None:
        for name, has_scratch, expected in [
            ("/tmp/x", False, "scratch-gb"),
            ("/tmp/x", True, ""),
            ("model.txt", False, "no current directory"),
            ("/workspace/x", False, ""),
        ]:
            with self.subTest(name=name), mock.patch("os.path.isdir", return_value=has_scratch):
                error = FileNotFoundError(errno.ENOENT, "No such file or directory", name)
                hint = _report.hint(error)
                self.assertIn(expected, hint)
                self.assertEqual(bool(expected), bool(hint))


if __name__ == "__main__":
    unittest.main()
