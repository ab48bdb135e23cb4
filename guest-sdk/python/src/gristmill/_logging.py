"""``logging`` in a component: records go to the job's log, with their levels.

The root logger has a handler from the start, so ``logging.getLogger(__name__).info(…)`` works
without any call. ``logging.basicConfig`` of the handler's module replaces this handler, as it would
do on a root without one; unless it names a stream, a file or handlers, records still go to the job's
log. The environment variable ``LOG_LEVEL`` sets the level of the root logger when an instance starts.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from ._context import Level, context

_LEVELS: list[tuple[int, Level]] = [
    (logging.ERROR, "error"),
    (logging.WARNING, "warn"),
    (logging.INFO, "info"),
    (logging.DEBUG, "debug"),
]


class JobLog(logging.Handler):
    """Writes records to the job's log."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(record)
        except RecursionError:  # as the handlers of `logging` do: the report would recurse too
            raise
        except Exception:
            # A wrong log call, such as one with too few arguments, must not fail the job.
            self.handleError(record)

    def _write(self, record: logging.LogRecord) -> None:
        names = (name for number, name in _LEVELS if record.levelno >= number)
        level: Level = next(names, "trace")
        message = self.format(record)
        try:
            ctx = context()
        except RuntimeError:  # no job runs: the component is being built, or it is `init`
            print(message, file=sys.stderr)
        else:
            ctx.log(level, message)


def install() -> None:
    """Gives the root logger its handler."""
    default = JobLog()
    configure = logging.basicConfig
    configure(format="%(name)s: %(message)s", level=logging.INFO, handlers=[default])

    def basic_config(**settings: Any) -> None:
        root = logging.getLogger()
        if root.handlers == [default]:
            root.removeHandler(default)
            root.setLevel(logging.WARNING)  # the level of a root that nothing has configured
        if not any(settings.get(key) for key in ("stream", "filename", "handlers")):
            # `logging` refuses a stream or a file beside handlers, even one that is `None`.
            for key in ("stream", "filename", "filemode"):
                settings.pop(key, None)
            settings |= {"handlers": [JobLog()]}
        configure(**settings)

    logging.basicConfig = basic_config


def set_level(name: str | None) -> None:
    """Sets the root's level to the value of ``LOG_LEVEL``, if there is one."""
    if not name:
        return
    level: Any = int(name) if name.isdigit() else name.strip().upper()
    try:
        logging.getLogger().setLevel(level)
    except ValueError:
        known = ", ".join(logging.getLevelNamesMapping())
        print(f"LOG_LEVEL is {name[:100]!r}; it may be a number or {known}", file=sys.stderr)
