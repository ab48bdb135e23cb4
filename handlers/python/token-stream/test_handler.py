import unittest

from gristmill import Cancelled, Chunk, InvalidInput
from gristmill.testing import TestContext
from handler import stream, tokenize


class TokenStream(unittest.TestCase):
    def test_tokens_join_to_the_text(self) -> None:
        text = "  Grüße,\n world… 3.5€!"
        tokens = ["  Grüße", ",", "\n world", "…", " 3", ".", "5", "€", "!"]
        self.assertEqual(tokenize(text), tokens)
        self.assertEqual("".join(tokens), text)
        self.assertEqual(tokenize(" \n"), [])

    def test_every_chunk_has_its_numbers(self) -> None:
        ctx = TestContext()
        self.assertIsNone(ctx.run(stream, {"prompt": "Hello, world", "max_tokens": 2}))
        metrics = {"input_tokens": 3, "output_tokens": 2, "stream_index": 1}
        self.assertEqual(ctx.outputs, ["Hello", ","])
        self.assertEqual(ctx.chunks[1], Chunk(",", metrics))

    def test_a_cancelled_job_stops_between_tokens(self) -> None:
        ctx = TestContext(cancelled_after=1)
        with self.assertRaises(Cancelled):
            ctx.run(stream, {"prompt": "a b c"})
        self.assertEqual(ctx.outputs, ["a"])

    def test_the_prompt_is_a_string(self) -> None:
        with self.assertRaisesRegex(InvalidInput, "^prompt: expected str, got int$"):
            TestContext().run(stream, {"prompt": 5})


if __name__ == "__main__":
    unittest.main()
