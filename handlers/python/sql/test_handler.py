import unittest

from gristmill import Failed
from gristmill.testing import TestContext
from handler import handler


class Sql(unittest.TestCase):
    def test_a_dialect_becomes_another(self) -> None:
        job_input = {
            "sql": "SELECT IFNULL(a, `b`) FROM t LIMIT 1",
            "from": "mysql",
            "to": "postgres",
        }
        output = TestContext().run(handler, job_input)
        self.assertEqual(output, {"statements": ['SELECT\n  COALESCE(a, "b")\nFROM t\nLIMIT 1']})

    def test_a_mistake_is_told_with_its_place(self) -> None:
        with self.assertRaisesRegex(Failed, "^line 1, column "):
            TestContext().run(handler, {"sql": "SELECT (1", "from": "sqlite", "to": "mysql"})

    def test_dialects_are_checked(self) -> None:
        with self.assertRaisesRegex(Failed, "^to: expected one of bigquery, "):
            TestContext().run(handler, {"sql": "", "from": "sqlite", "to": "latin"})


if __name__ == "__main__":
    unittest.main()
