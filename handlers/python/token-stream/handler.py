"""Streams the tokens of a prompt, with the numbers that clients of a language model expect."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import gristmill
from gristmill import Chunk, Context


@dataclass
class Input:
    prompt: str
    max_tokens: int | None = None
    """The most tokens to stream; all of them when it is missing."""
    delay_ms: int = 0
    """The pause before each token, in milliseconds."""


@gristmill.handler
def stream(ctx: Context, input: Input) -> Iterator[Chunk]:
    """Returns nothing, so the job's output is the list of its chunks."""
    tokens = tokenize(input.prompt)
    for index, token in enumerate(tokens[: input.max_tokens]):
        time.sleep(input.delay_ms / 1000)
        yield Chunk(
            token,
            {"input_tokens": len(tokens), "output_tokens": index + 1, "stream_index": index},
        )


def tokenize(text: str) -> list[str]:
    """Words and single punctuation marks, each with the white space before it: joined, they are the
    text again, except for white space at its end."""
    return re.findall(r"\s*(?:[^\W_]+|\S)", text)
