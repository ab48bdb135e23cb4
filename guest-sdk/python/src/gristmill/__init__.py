"""Write Gristmill handlers in Python.

A handler is a function; ``python -m gristmill.build`` compiles it to a WebAssembly component::

    from dataclasses import dataclass

    import gristmill

    @dataclass
    class Input:
        text: str

    @gristmill.handler
    def count(ctx: gristmill.Context, input: Input):
        return {"words": len(input.text.split())}
"""

from . import http, serverless, wsgi
from ._context import Context, Level, S3Config, context
from ._errors import CallError, Cancelled, EmitError, Error, Failed, FailedJob, InvalidInput
from ._handler import Chunk, handler, init
from ._values import RawJson

__all__ = [
    "CallError",
    "Cancelled",
    "Chunk",
    "Context",
    "EmitError",
    "Error",
    "Failed",
    "FailedJob",
    "InvalidInput",
    "Level",
    "RawJson",
    "S3Config",
    "context",
    "handler",
    "http",
    "init",
    "serverless",
    "wsgi",
]
