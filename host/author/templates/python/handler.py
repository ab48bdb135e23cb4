"""Streams the words of a text, and returns how many there are."""

import time
from collections.abc import Generator
from dataclasses import dataclass

import gristmill


@dataclass
class Input:
    text: str
    pause_ms: int = 0
    """The pause before each word, in milliseconds."""


@gristmill.handler
def stream(ctx: gristmill.Context, input: Input) -> Generator[str, None, dict[str, int]]:
    words = input.text.split()
    for word in words:
        time.sleep(input.pause_ms / 1000)
        yield word
    ctx.info(f"{len(words)} words")
    return {"words": len(words)}
