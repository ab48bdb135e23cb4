"""``runpod.serverless.modules.rp_logger``: a logger that writes to the job's log."""

from __future__ import annotations

import os
from typing import Any, ClassVar, get_args

from ...._context import Level, context

LOG_LEVELS = ["NOTSET", "TRACE", "DEBUG", "INFO", "WARN", "ERROR"]
MAX_MESSAGE_LENGTH = 4096


def _level(value: Any) -> str:
    name = LOG_LEVELS[value] if type(value) is int and 0 <= value < len(LOG_LEVELS) else value
    if not isinstance(name, str) or name.upper() not in LOG_LEVELS:
        allowed = ", ".join(LOG_LEVELS)
        raise ValueError(f"the log level {str(value)[:100]!r} is none of {allowed}")
    return name.upper()


class RunPodLogger:
    """The only logger of this kind: all instances are the same one.

    Its level is that of ``set_level``, or else of the environment (``RUNPOD_LOG_LEVEL``,
    ``RUNPOD_DEBUG_LEVEL``), or else ``DEBUG``. The middle of a message of more than 4096 characters
    is left out.
    """

    _instance: ClassVar[RunPodLogger | None] = None
    _set: str | None = None

    def __new__(cls) -> RunPodLogger:
        if RunPodLogger._instance is None:
            RunPodLogger._instance = super().__new__(cls)
        return RunPodLogger._instance

    @property
    def level(self) -> str:
        """The present level. It is read when a line is written, as the environment is not known
        when a component is built."""
        if self._set:
            return self._set
        named = os.environ.get("RUNPOD_LOG_LEVEL") or os.environ.get("RUNPOD_DEBUG_LEVEL")
        try:
            return _level(int(named) if named and named.isdigit() else named or "DEBUG")
        except ValueError:
            return "DEBUG"

    def set_level(self, new_level: str | int) -> None:
        """Sets the level by its name or number."""
        self._set = _level(new_level)
        self.info(f"Log level set to {self._set}")

    def log(self, message: Any, message_level: str = "INFO", job_id: str | None = None) -> None:
        """Writes one message."""
        if self.level == "NOTSET":
            return
        if message_level != "TIP" and LOG_LEVELS.index(self.level) > LOG_LEVELS.index(
            message_level
        ):
            return
        text = str(message)
        if len(text) > MAX_MESSAGE_LENGTH:
            half = MAX_MESSAGE_LENGTH // 2
            left_out = len(text) - MAX_MESSAGE_LENGTH
            text = f"{text[:half]}\n...TRUNCATED {left_out} CHARACTERS...\n{text[-half:]}"
        try:
            ctx = context()
        except RuntimeError:  # no job runs
            print(f"{message_level.ljust(7)}| {text}", flush=True)
            return
        if job_id and job_id != ctx.job_id:
            text = f"{job_id} | {text}"
        level: Any = message_level.lower()
        ctx.log(level if level in get_args(Level) else "info", text)

    def secret(self, secret_name: str, secret: Any) -> None:
        """Writes the first and the last character of a secret."""
        text = str(secret)
        hidden = text[0] + "*" * (len(text) - 2) + text[-1] if len(text) > 2 else "*" * len(text)
        self.info(f"{secret_name}: {hidden}")

    def debug(self, message: Any, request_id: Any = None, job_id: Any = None) -> None:
        """Writes a line at ``debug``."""
        self.log(message, "DEBUG", request_id or job_id)

    def info(self, message: Any, request_id: Any = None, job_id: Any = None) -> None:
        """Writes a line at ``info``."""
        self.log(message, "INFO", request_id or job_id)

    def warn(self, message: Any, request_id: Any = None, job_id: Any = None) -> None:
        """Writes a line at ``warn``."""
        self.log(message, "WARN", request_id or job_id)

    def error(self, message: Any, request_id: Any = None, job_id: Any = None) -> None:
        """Writes a line at ``error``."""
        self.log(message, "ERROR", request_id or job_id)

    def trace(self, message: Any, request_id: Any = None, job_id: Any = None) -> None:
        """Writes a line at ``trace``."""
        self.log(message, "TRACE", request_id or job_id)

    def tip(self, message: Any) -> None:
        """Writes a line at ``info``, whatever the level is."""
        self.log(message, "TIP")
