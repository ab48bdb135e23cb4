import unittest

from gristmill import Cancelled, InvalidInput
from gristmill.testing import TestContext
from handler import stream


class Stream(unittest.TestCase):
    def test_every_word_is_a_chunk(self) -> None:
        ctx = TestContext()
        self.assertEqual(ctx.run(stream, {"text": "to be or not"}), {"words": 4})
        self.assertEqual(ctx.outputs, ["to", "be", "or", "not"])

    def test_a_cancelled_job_stops_between_words(self) -> None:
        ctx = TestContext(cancelled_after=1)
        with self.assertRaises(Cancelled):
            ctx.run(stream, {"text": "to be or not"})
        self.assertEqual(ctx.outputs, ["to"])

    def test_the_text_is_needed(self) -> None:
        with self.assertRaises(InvalidInput):
            TestContext().run(stream, {})


if __name__ == "__main__":
    unittest.main()
