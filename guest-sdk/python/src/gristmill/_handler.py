"""Turns a plain function into a component's export."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, TypeVar, get_type_hints

from . import _loop, http
from ._context import Context, running
from ._errors import CallError, EmitError, Error, Failed, InvalidInput
from ._report import formatted, one_line, text_of
from ._values import RawJson, check, decode, encode, well_formed

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Chunk:
    """One element of a job's stream. A generator yields it instead of a plain value to send
    ``metrics`` to the client with the output; tests find them in ``TestContext.chunks``."""

    output: Any
    metrics: dict[str, Any] | None = None


@dataclass(frozen=True)
class Handler:
    """Handles one job.

    ``call`` takes the context and the input's text; its result may be a value, an awaitable, or a
    generator of either kind. ``conclude`` then turns a value into the output.
    """

    call: Callable[[Context, str], Any]
    conclude: Callable[[Context, Any], Any] = lambda ctx, value: value
    aggregate: bool = True
    """Whether a generator that returns nothing has its chunks as output, or an empty list."""
    of_runpod: bool = False
    """Whether it was written for the hosted services, and may read their environment."""
    check: Callable[[], None] = lambda: None
    """Raises ``TypeError`` if no input could ever be read."""
    input: Callable[[], Any] = lambda: Any
    """The annotation of the input."""

    def handle(self, ctx: Context, text: str) -> str:
        """Handles one job: JSON text in, JSON text out. Raises :class:`Error` and nothing else;
        the traceback of any other exception is written to the job's log."""
        with running(ctx):
            try:
                return _encoded(ctx, self._output(ctx, self.call(ctx, text)))
            except (Error, KeyboardInterrupt):  # the latter ends a test
                raise
            except BaseException as error:  # SystemExit too: a trap would have a worse message
                raise _failure(error, ctx.error)

    def _output(self, ctx: Context, result: Any) -> Any:
        if inspect.isgenerator(result):
            with closing(result):
                return self._stream(ctx, result)
        if inspect.isasyncgen(result):
            return _run(self._stream_async(ctx, result))
        if inspect.isawaitable(result):
            return self._output(ctx, _run(result))
        return self.conclude(ctx, result)

    def _stream(self, ctx: Context, chunks: Any) -> Any:
        while True:
            try:
                chunk = next(chunks)
            except StopIteration as end:
                return self._end(ctx, end.value)
            self._emit(ctx, chunk)

    async def _stream_async(self, ctx: Context, chunks: Any) -> Any:
        async with aclosing(chunks):
            async for chunk in chunks:
                self._emit(ctx, chunk)
        return self._end(ctx, None)

    def _emit(self, ctx: Context, chunk: Any) -> None:
        if isinstance(chunk, Chunk):
            ctx.emit(chunk.output, chunk.metrics)
        else:
            ctx.emit(self.conclude(ctx, chunk))
        ctx.check_cancelled()

    def _end(self, ctx: Context, value: Any) -> Any:
        if value is None:
            return None if self.aggregate else []
        return self.conclude(ctx, value)


@dataclass(frozen=True)
class Server:
    """Answers HTTP requests instead of jobs."""

    application: Callable[..., Any]
    """By the rules of WSGI; see :mod:`gristmill.wsgi`."""


def _encoded(ctx: Context, output: Any) -> str:
    try:
        return encode(output)
    except ValueError as error:
        raise Failed(f"output has no JSON form: {text_of(error)}") from None
    except Error:
        raise
    except Exception as error:  # of the author's code, such as a `model_dump` or a property
        failure = _failure(error, ctx.error)
        raise Failed(f"output has no JSON form: {failure.message}") from error


def _failure(error: BaseException, log: Callable[[str], None]) -> Error:
    """The failure of a job that ends with an exception; ``log`` gets the traceback of any that is
    not a failure of the SDK's own."""
    inner = error
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]  # `asyncio.TaskGroup` wraps what its tasks raise
    if isinstance(inner, Error):
        return inner
    try:
        log(formatted(error))
        failed = Failed(_one_line(error))
    except Exception as why:  # of an attribute of the exception, which the author's class computes
        failed = Failed(f"{type(error).__name__} cannot be shown: {type(why).__name__}")
    failed.__cause__ = error
    return failed


def texts_of(error: Error) -> tuple[str, str | None]:
    """The message of a failure, and its details as JSON text if it has any."""
    # A subclass with an `__init__` of its own may have neither attribute.
    message, value = getattr(error, "message", error), getattr(error, "details", None)
    details = None
    if value is not None:
        try:
            details = encode(value)
        except Exception as why:  # of the author's code, such as a `model_dump` or a property
            details = encode(f"details have no JSON form: {text_of(why)}")
    return well_formed(text_of(message)), details


def handler(function: Function) -> Function:
    """Makes a function the handler of this component: ``f(ctx, input)``, plain, ``async``, or a
    generator. The annotation of ``input`` determines how the job's input is read: a dataclass, a
    plain type, or :class:`RawJson`. Without one it is the result of ``json.loads``.

    Without this decorator, a function named ``handler`` in the handler's module is used, and
    called with the whole job; see :func:`for_job`.
    """
    parameters = [*inspect.signature(function).parameters][:2]
    if len(parameters) < 2:
        raise TypeError(f"a handler is f(ctx, input); {function.__name__} takes {parameters}")

    @functools.cache
    def hint() -> Any:
        # Not earlier: the annotation may name what is defined below the function.
        return get_type_hints(function).get(parameters[1], Any)

    def call(ctx: Context, text: str) -> Any:
        raw = hint() is RawJson
        return function(ctx, RawJson(text) if raw else decode(_parse(text), hint()))

    def check_input() -> None:
        try:
            check(hint())
        except TypeError as error:
            raise TypeError(f"input of {function.__name__}: {error}") from None

    function.__gristmill_handler__ = Handler(  # type: ignore[attr-defined]
        call, check=check_input, input=hint
    )
    register(of(function))
    return function


def for_job(
    function: Callable[..., Any], *, aggregate: bool = True, refresh_worker: bool = False
) -> Handler:
    """A handler ``f(job)`` or ``f(job, ctx)``, by the conventions of the hosted services; see
    :func:`_with_context`.

    ``job`` is a dict with ``id``, ``input`` and, if the submission has one, ``s3Config``. A dict
    with an ``error`` that is returned or yielded fails the job, and its other fields become the
    job's ``output``, up to 8 KiB. In a call of ``/openai`` an ``error`` that is a dict is the output
    instead, and the host answers with its status code. ``refresh_worker`` is removed from the dict, and the instance
    takes no further job.
    """
    work = _with_context(function)

    def call(ctx: Context, text: str) -> Any:
        if refresh_worker:
            ctx.retire()
        job = {"id": ctx.job_id, "input": _parse(text)}
        ctx._is_openai = isinstance(job["input"], dict) and "openai_route" in job["input"]
        if s3 := ctx.s3_config:
            job["s3Config"] = {
                "accessId": s3.access_id,
                "accessSecret": s3.access_secret,
                "bucketName": s3.bucket_name,
                "endpointUrl": s3.endpoint_url,
            }
        return work(job, ctx)

    return Handler(call, _conclude, aggregate)


def _with_context(function: Callable[..., Any]) -> Callable[[Any, Context], Any]:
    """The function with the job and the context as its arguments. Its second parameter gets the
    context if it is positional and has no default, or if its name is ``ctx`` or ``context``. The
    hosted services pass the job alone, so every other parameter keeps its default."""
    parameters = [*inspect.signature(function).parameters.values()]
    if len(parameters) < 2:
        return lambda job, ctx: function(job)
    second = parameters[1]
    is_context = second.name in ("ctx", "context")
    if is_context and second.kind is second.KEYWORD_ONLY:
        return lambda job, ctx: function(job, **{second.name: ctx})
    is_positional = second.kind in (second.POSITIONAL_ONLY, second.POSITIONAL_OR_KEYWORD)
    if is_positional and (is_context or second.default is second.empty):
        return function
    return lambda job, ctx: function(job)


def _conclude(ctx: Context, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if "refresh_worker" in value:
        value = dict(value)
        if value.pop("refresh_worker"):
            ctx.retire()
    error = value.get("error")
    if error and not (ctx._is_openai and isinstance(error, Mapping)):
        if rest := {name: part for name, part in value.items() if name != "error"}:
            ctx.progress(rest)
        if isinstance(error, BaseException):
            # As if it had been raised, so that its message and its traceback are not lost.
            raise _failure(error, ctx.error)
        raise Failed(error if isinstance(error, str) else _error_text(error))
    return value


def _error_text(error: Any) -> str:
    try:
        return encode(error)
    except ValueError:
        return text_of(error)


_registered: Handler | Server | None = None
_init: Callable[[], Any] | None = None


def register(handler: Handler | Server) -> None:
    """Makes ``handler`` the handler of this component."""
    global _registered
    _registered = handler


def of(function: Callable[..., Any]) -> Handler:
    """The handler of a function, decorated or not."""
    return getattr(function, "__gristmill_handler__", None) or for_job(function)


def load(name: str) -> tuple[Handler | Server, ModuleType]:
    """Runs the module ``name`` as ``__main__`` and finds its handler: the one registered meanwhile,
    or the function named ``handler``."""
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"there is no module {name}")
    module = module_from_spec(spec)
    # Under both names, since dataclasses and pickles look their module up.
    sys.modules["__main__"] = sys.modules[name] = module
    module.__name__ = "__main__"
    exec(spec.loader.get_code(name), module.__dict__)  # type: ignore[attr-defined]
    if _registered:
        if isinstance(_registered, Handler):
            _registered.check()
        return _registered, module
    if callable(function := getattr(module, "handler", None)):
        return of(function), module
    raise TypeError(
        f"{name} has no handler: define handler(job), decorate a function with "
        "@gristmill.handler, or call gristmill.wsgi.serve(application)"
    )


def init(function: Function) -> Function:
    """Makes a function run once in each instance, before its first job, within that job's time and
    limits. An exception ends that job ``FAILED``. Work that needs neither the environment nor
    the network is better done at the top level of a module, which runs only when the component is
    built."""
    global _init
    _init = function
    return function


def has_init() -> bool:
    """Whether there is a function to run before the first job."""
    return _init is not None


def run_init() -> None:
    """Runs the function given to :func:`init`. Raises :class:`Failed`."""
    try:
        result = _init() if _init else None
        if inspect.isawaitable(result):
            _run(result)
    except Error:
        raise
    except BaseException as error:
        raise _failure(error, print)


def _run(awaitable: Awaitable[Any]) -> Any:
    async def wait() -> Any:
        return await awaitable

    with asyncio.Runner(loop_factory=_loop.Loop) as runner:
        return runner.run(wait())


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidInput("input is nested too deeply") from None
    except json.JSONDecodeError:  # of a test: the host accepts nothing but JSON
        raise
    except ValueError:
        most = sys.get_int_max_str_digits()
        raise InvalidInput(f"input has an integer of more than {most} digits") from None


def _one_line(error: BaseException) -> str:
    if isinstance(error, (CallError, EmitError, http.Error)):
        return text_of(error)  # says what it is
    return one_line(error)
