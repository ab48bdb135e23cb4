"""Connects the component's imports and exports to the SDK. Only the build imports this module,
because the module ``wit_world`` exists only there.

The handler's module is imported once, when the component is built. Each instance starts from a
snapshot of the interpreter made after that.
"""

from __future__ import annotations

import sys

from . import _ssl

sys.modules["ssl"] = _ssl.module()  # before the modules that import it

import _strptime  # noqa: F401, E402 - `datetime.strptime` imports it when it is called
import encodings.idna  # noqa: F401 - and so do URLs this
import contextlib
import gc
import importlib
import json
import linecache
import math
import os
from typing import Any

from componentize_py_types import Err
from wit_world.imports import context as wit_context
from wit_world.imports import endpoints as wit_endpoints
from wit_world.imports import http as wit_http
from wit_world.imports import log as wit_log
from wit_world.imports import output as wit_output
from wit_world.imports import gristmill_handler_types as wit_types

from . import _files, _handler, _logging, _loop, _report, _sockets, _threads, _wasi, _wsgi, http
from ._context import Context, Level, S3Config, running
from ._errors import CallError, Cancelled, EmitError, Error, FailedJob, InvalidInput
from ._values import well_formed

_LEVELS = {level.name.lower(): level for level in wit_log.Level}


_IMPORTED_LATER = {
    "anyio": ["anyio._backends._asyncio"],
    "httpx": ["httpcore", "httpcore._backends.anyio", "anyio", "anyio._backends._asyncio"],
}
"""Modules that popular packages import when they are called. The build imports them with the
package, so that no job needs the time."""


class _Host:
    """:class:`gristmill._context.Host` by the sandbox's imports."""

    attempt = staticmethod(wit_context.attempt)
    endpoint = staticmethod(wit_context.endpoint)
    remaining_ms = staticmethod(wit_context.remaining_ms)
    cancelled = staticmethod(wit_context.cancelled)
    trace_parent = staticmethod(wit_context.trace_parent)
    retire = staticmethod(wit_context.retire)
    retry_after = staticmethod(wit_context.retry_after)
    progress = staticmethod(wit_output.progress)

    def s3_config(self) -> S3Config | None:
        s3 = wit_context.s3()
        return s3 and S3Config(s3.access_id, s3.access_secret, s3.bucket_name, s3.endpoint_url)

    def emit(self, output: str, metrics: str | None) -> None:
        try:
            wit_output.emit(output, metrics)
        except Err as error:
            match error.value:
                case wit_output.EmitError_InvalidJson(why):
                    raise EmitError("invalid-json", why) from None
                case wit_output.EmitError_QuotaExceeded(limit):
                    raise EmitError("quota-exceeded", limit_bytes=limit) from None
                case _:
                    raise EmitError("closed") from None

    def log(self, level: Level, message: str) -> None:
        sys.stdout.flush()  # what was printed before comes before
        wit_log.write(_LEVELS[level], message)

    def http_send(self, request: http.Request) -> http.Response:
        timeout = request.timeout
        timeout_ms = None if timeout is None else min(max(math.ceil(timeout * 1000), 0), 2**32 - 1)
        headers = [(well_formed(name), well_formed(value)) for name, value in request.headers]
        try:
            answer = wit_http.send(
                wit_http.Request(
                    request.method, well_formed(request.url), headers, request.body, timeout_ms
                )
            )
        except Err as error:
            match error.value:
                case wit_http.HttpError_Timeout():
                    raise http.Error("timeout") from None
                case wit_http.HttpError_TooLarge(limit):
                    raise http.Error("too-large", limit_bytes=limit) from None
                case wit_http.HttpError_Denied(what):
                    raise http.Error("denied", what) from None
                case wit_http.HttpError_InvalidRequest(what):
                    raise http.Error("invalid-request", what) from None
                case wit_http.HttpError_Connect(what):
                    raise http.Error("connect", what) from None
                case wit_http.HttpError_Other(what):
                    raise http.Error("other", what) from None
        return http.Response(answer.status, answer.headers, answer.body)

    def submit(self, endpoint: str, input: str, key: str | None) -> str:
        try:
            return wit_endpoints.submit(endpoint, input, key)
        except Err as error:
            raise _lift_call_error(error.value) from None

    def call(self, endpoint: str, input: str, key: str | None) -> str:
        try:
            return wit_endpoints.call(endpoint, input, key)
        except Err as error:
            raise _lift_call_error(error.value) from None


def _lift_call_error(error: Any) -> CallError:
    match error:
        case wit_endpoints.CallError_Failed(job):
            return CallError("failed", job=FailedJob(job.id, job.status, job.error))
        case wit_endpoints.CallError_Denied(why):
            return CallError("denied", why)
        case wit_endpoints.CallError_InvalidRequest(why):
            return CallError("invalid-request", why)
        case wit_endpoints.CallError_LimitReached(why):
            return CallError("limit-reached", why)
        case wit_endpoints.CallError_Timeout(why):
            return CallError("timeout", why)
    return CallError("other", error.value)


_loaded: _handler.Handler | _handler.Server
_fresh = True


def load(name: str, directory: str) -> None:
    """Runs the handler's module and finds its handler. ``directory`` has the build's lists, and
    gets the report if the module fails."""
    global _loaded
    _sockets.install(_wasi.Exchange, _wasi.wait, _wasi.drop)
    _loop.install(_wasi.Exchange, _wasi.wait, _wasi.drop)
    _threads.install()
    sys.stdout.reconfigure(line_buffering=True)
    _logging.install()
    with open(f"{directory}/roots.json") as file:
        roots = json.load(file)
    _report.set_roots([(root, shown) for root, shown in roots])
    with open(f"{directory}/machine_code.json") as file:
        _report.set_machine_code(json.load(file), roots[1][0])
    try:
        _loaded, module = _handler.load(name)
        _finish(module, directory)
    except BaseException as error:
        report = {"traceback": _report.formatted(error), "hint": _report.hint(error)}
        with open(f"{directory}/gristmill_failure.json", "w") as file:
            json.dump(report, file)
        raise


def _finish(module: Any, directory: str) -> None:
    """Completes the snapshot after the handler's module has run."""
    for package, later in _IMPORTED_LATER.items():
        if package in sys.modules:
            for part in later:
                with contextlib.suppress(ImportError):
                    importlib.import_module(part)
    if backend := sys.modules.get("anyio._backends._asyncio"):
        _threads.install_for_anyio(backend)
    _keep_sources(os.path.dirname(module.__spec__.origin))
    _files.install(f"{directory}/carried.json")
    # The collector need not visit, and so copy, what the snapshot has.
    gc.collect()
    gc.freeze()


def _keep_sources(directory: str) -> None:
    """Lets tracebacks show the lines of the handler's own modules: the sandbox has no files."""
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None) or ""
        if file.startswith(directory + os.sep):
            lines = linecache.getlines(file)
            # Without a time of modification an entry is never checked against the disk.
            entry = (sum(map(len, lines)), None, lines, file)
            linecache.cache[file] = linecache.cache[_report.shown_path(file)] = entry


def _begin() -> None:
    """Replaces what is in the snapshot but must differ between instances."""
    global _fresh
    if _fresh:
        if random := sys.modules.get("random"):
            random.seed()
        _logging.set_level(os.environ.get("LOG_LEVEL"))
    _fresh = False


def _of_runpod() -> dict[str, str]:
    """The environment that handlers of the hosted services read."""
    endpoint = wit_context.endpoint()
    return {
        "RUNPOD_CPU_COUNT": "1",
        "RUNPOD_ENDPOINT_ID": endpoint,
        "RUNPOD_POD_HOSTNAME": endpoint,
        "RUNPOD_POD_ID": f"{endpoint}-{os.urandom(6).hex()}",
    }


def _end() -> None:
    """Ends what a call of the component leaves open: the instance may get another job."""
    # Pollables before the streams that they belong to.
    _loop.end_waits()
    _wasi.close_all()
    sys.stdout.flush()
    sys.stderr.flush()


class Run:
    """The export ``run`` of a handler of jobs."""

    def handle(self, job: Any) -> str:
        _begin()
        if _loaded.of_runpod:
            for name, value in _of_runpod().items():
                os.environ.setdefault(name, value)
        try:
            return _loaded.handle(Context(job.id, _Host()), job.input)
        except Error as error:
            raise Err(_lower(error)) from None
        finally:
            _end()


class IncomingHandler:
    """The export ``incoming-handler`` of a handler of HTTP requests."""

    def handle(self, request: Any, response_out: Any) -> None:
        _begin()
        host = _Host()
        try:
            with _wasi.Answering(request, response_out) as exchange, running(Context("", host)):
                _wsgi.answer(_loaded.application, exchange, lambda text: host.log("error", text))
        finally:
            _end()


class Lifecycle:
    """The export ``lifecycle``; only components with an ``init`` function have it."""

    def init(self) -> None:
        _begin()
        try:
            _handler.run_init()
        except Error as error:
            raise Err(_handler.texts_of(error)[0]) from None
        finally:
            _end()


def _lower(error: Error) -> Any:
    if isinstance(error, Cancelled):
        return wit_types.Error_Cancelled()
    failure = wit_types.Failure(*_handler.texts_of(error))
    if isinstance(error, InvalidInput):
        return wit_types.Error_InvalidInput(failure)
    return wit_types.Error_Failed(failure)
