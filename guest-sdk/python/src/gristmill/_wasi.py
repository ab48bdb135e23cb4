"""``wasi:http`` and ``wasi:io/poll`` as :mod:`gristmill._connection` and :mod:`gristmill._loop` use
them. Only a component has the module ``wit_world``."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from socket import gaierror
from typing import Any

from componentize_py_types import Err, Ok
from wit_world.imports import monotonic_clock, outgoing_handler, streams
from wit_world.imports import poll as wasi_poll
from wit_world.imports import wasi_http_types as types

_METHODS = {
    "GET": types.Method_Get,
    "HEAD": types.Method_Head,
    "POST": types.Method_Post,
    "PUT": types.Method_Put,
    "DELETE": types.Method_Delete,
    "OPTIONS": types.Method_Options,
    "TRACE": types.Method_Trace,
    "PATCH": types.Method_Patch,
}


def wait(pollables: Sequence[Any], timeout: float | None) -> set[int]:
    """Waits until one of the pollables is ready, at most ``timeout`` seconds; the indexes of those
    that are. The caller still owns them."""
    if timeout is None:
        return set(wasi_poll.poll([*pollables]))
    with monotonic_clock.subscribe_duration(max(0, int(timeout * 1e9))) as timer:
        ready = wasi_poll.poll([*pollables, timer])
    return {index for index in ready if index < len(pollables)}


def drop(resource: Any) -> None:
    """Gives a resource back to the host."""
    _pollables.pop(resource, None)
    resource.__exit__(None, None, None)


_open: set[Exchange] = set()
"""The open exchanges. This set keeps them from the garbage collector, which drops resources in any
order: the host stops an instance that drops a resource before its children."""

_pollables: dict[Any, Exchange] = {}
"""The pollables of open exchanges, which are children of the exchanges' streams."""


def close_all() -> None:
    """Closes the exchanges that a job leaves open: the instance may get another job."""
    while _open:
        _open.pop().close()


class Answering:
    """:class:`gristmill._wsgi.Exchange` by ``wasi:http``: a request that this component answers."""

    def __init__(self, request: Any, outparam: Any) -> None:
        method = request.method()
        names = (name for name, kind in _METHODS.items() if isinstance(method, kind))
        self.method = next(names, None) or method.value
        self.scheme = "https" if isinstance(request.scheme(), types.Scheme_Https) else "http"
        self.authority = request.authority() or "localhost"
        self.target = request.path_with_query() or "/"
        with request.headers() as fields:
            self.headers = [(name, value) for name, value in fields.entries()]
        self._outparam = outparam
        self._input_body = request.consume()
        self._input = self._input_body.stream()
        self._request = request
        self._output_body: Any = None
        self._output: Any = None

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *error: object) -> None:
        """Returns everything to the host. An answer without its end is one that broke off."""
        # Children before their parents.
        for name in ("_output", "_output_body", "_input", "_input_body", "_request", "_outparam"):
            if (resource := getattr(self, name)) is not None:
                setattr(self, name, None)
                drop(resource)

    def read(self, most: int) -> bytes:
        while True:
            try:
                if data := self._input.read(most):
                    return bytes(data)
            except Err as error:
                if isinstance(error.value, streams.StreamError_Closed):
                    return b""
                raise _broken("the body of the request", error.value) from None
            _until(self._input)

    def start(self, status: int, headers: list[tuple[str, bytes]]) -> None:
        try:
            response = types.OutgoingResponse(types.Fields.from_list(headers))
            response.set_status_code(status)
        except Err as error:
            kind = type(error.value).__name__.removeprefix("HeaderError_").lower()
            raise ValueError(f"the host does not accept this status or a header: {kind}") from None
        self._output_body = response.body()
        outparam, self._outparam = self._outparam, None
        types.ResponseOutparam.set(outparam, Ok(response))
        self._output = self._output_body.write()

    def write(self, data: bytes) -> None:
        try:
            while data:
                if room := self._output.check_write():
                    self._output.write(data[:room])
                    data = data[room:]
                else:
                    _until(self._output)
            self._output.flush()
        except Err as error:
            raise _broken("the answer", error.value) from None

    def finish(self) -> None:
        try:
            while not self._output.check_write():
                _until(self._output)
            output, self._output = self._output, None
            drop(output)
            body, self._output_body = self._output_body, None
            types.OutgoingBody.finish(body, None)
        except Err as error:
            raise _broken("the answer", error.value) from None


def _until(stream: Any) -> None:
    """Waits for a stream."""
    with stream.subscribe() as pollable:
        wasi_poll.poll([pollable])


def _broken(what: str, error: Any) -> OSError:
    """The error of a stream that ended early, such as that of a client that has left."""
    if isinstance(error, streams.StreamError_LastOperationFailed):
        code = types.http_error_code(error.value)
        match code:
            case types.ErrorCode_HttpRequestBodySize():
                return OSError(errno.EFBIG, f"{what} is too large")
            case types.ErrorCode_ConnectionReadTimeout():
                return TimeoutError(errno.ETIMEDOUT, f"{what} came too slowly")
    return ConnectionResetError(errno.ECONNRESET, f"{what}: the client has left")


class Exchange:
    """:class:`gristmill._connection.Exchange` by ``wasi:http``."""

    def __init__(
        self,
        method: str,
        scheme: str,
        authority: str,
        target: str,
        headers: list[tuple[bytes, bytes]],
        has_body: bool,
    ) -> None:
        self._where = f"{scheme}://{authority}"
        self._future: Any = None
        self._response: Any = None
        self._input_body: Any = None
        self._input: Any = None
        self._output_body: Any = None
        self._output: Any = None
        try:
            fields = types.Fields.from_list([(n.decode("latin-1"), v) for n, v in headers])
        except Err:
            raise OSError(errno.EINVAL, "a header of the HTTP request is malformed") from None
        request = types.OutgoingRequest(fields)
        kind = _METHODS.get(method)
        try:
            request.set_method(kind() if kind else types.Method_Other(method))
            is_tls = scheme == "https"
            request.set_scheme(types.Scheme_Https() if is_tls else types.Scheme_Http())
            request.set_authority(authority)
            request.set_path_with_query(target)
        except Err:
            what = f"{method} {self._where}{target}"[:300]
            raise OSError(errno.EINVAL, f"the HTTP request is malformed: {what}") from None
        _open.add(self)
        if has_body:
            self._output_body = request.body()
            self._output = self._output_body.write()
        try:
            self._future = outgoing_handler.handle(request, None)
        except Err as error:
            self.close()
            raise self._error(error.value) from None

    def write(self, data: bytes) -> int:
        self._check_open()
        try:
            count = min(self._output.check_write(), len(data))
            if count:
                self._output.write(data[:count])
            return int(count)
        except Err as error:
            raise self._stream_error(error.value) from None

    def finish(self) -> None:
        if self._output is None:
            return
        drop(self._output)
        body, self._output, self._output_body = self._output_body, None, None
        try:
            types.OutgoingBody.finish(body, None)
        except Err as error:
            raise self._error(error.value) from None

    def head(self) -> tuple[int, list[tuple[bytes, bytes]]] | None:
        self._check_open()
        answer = self._future.get()
        if answer is None:
            return None
        result = answer.value if isinstance(answer, Ok) else answer
        if not isinstance(result, Ok):
            raise self._error(result.value)
        self._response = result.value
        with self._response.headers() as fields:
            headers = [(name.encode("latin-1"), value) for name, value in fields.entries()]
        self._input_body = self._response.consume()
        self._input = self._input_body.stream()
        return self._response.status(), headers

    def read(self, most: int) -> bytes | None:
        self._check_open()
        try:
            return self._input.read(most) or None
        except Err as error:
            if isinstance(error.value, streams.StreamError_Closed):
                return b""
            raise self._stream_error(error.value) from None

    def until_writable(self) -> Any:
        return self._subscribed(self._output)

    def until_head(self) -> Any:
        return self._subscribed(self._future)

    def until_readable(self) -> Any:
        return self._subscribed(self._input)

    def _subscribed(self, resource: Any) -> Any:
        self._check_open()
        pollable = resource.subscribe()
        _pollables[pollable] = self
        return pollable

    def close(self) -> None:
        # Children before their parents: the host does not drop a resource with children.
        for pollable in [key for key, exchange in _pollables.items() if exchange is self]:
            drop(pollable)
        for name in ("_output", "_output_body", "_input", "_input_body", "_response", "_future"):
            resource = getattr(self, name)
            if resource is not None:
                setattr(self, name, None)
                drop(resource)
        _open.discard(self)

    def _check_open(self) -> None:
        if self not in _open:
            what = f"{self._where}: the request has ended, at the latest with its job"
            raise ConnectionAbortedError(errno.ECONNABORTED, what)

    def _stream_error(self, error: Any) -> OSError:
        if isinstance(error, streams.StreamError_Closed):
            return ConnectionResetError(errno.ECONNRESET, f"{self._where}: connection closed")
        code = types.http_error_code(error.value)
        if code is None:
            return OSError(errno.EIO, f"{self._where}: {error.value.to_debug_string()}")
        return self._error(code)

    def _error(self, code: Any) -> OSError:
        where = self._where
        match code:
            case types.ErrorCode_HttpRequestDenied():
                return PermissionError(
                    errno.EACCES,
                    f"the endpoint does not allow requests to {where}; allow them with "
                    "--allow-host, or in `[network] allow` of gristmill.toml",
                )
            case types.ErrorCode_DestinationIpProhibited():
                return PermissionError(
                    errno.EACCES,
                    f"the address of {where} is not public; `!private` at the end of its entry in "
                    "the list of allowed hosts permits it, and for owners other than the operator "
                    "`serve --handler-allow` too",
                )
            case types.ErrorCode_DnsError() | types.ErrorCode_DnsTimeout():
                return gaierror(8, f"{where}: no address found")
            case types.ErrorCode_ConnectionRefused():
                return ConnectionRefusedError(errno.ECONNREFUSED, f"cannot connect to {where}")
            case (
                types.ErrorCode_ConnectionTimeout()
                | types.ErrorCode_ConnectionReadTimeout()
                | types.ErrorCode_HttpResponseTimeout()
            ):
                return TimeoutError(errno.ETIMEDOUT, f"{where}: timed out")
            case types.ErrorCode_ConnectionLimitReached():
                return OSError(errno.EMFILE, f"{where}: the job has too many open requests")
            case types.ErrorCode_HttpRequestBodySize(most):
                return OSError(errno.EFBIG, f"{where}: the request exceeds {most} bytes")
            case types.ErrorCode_HttpResponseBodySize(most):
                return OSError(errno.EFBIG, f"{where}: the response exceeds {most} bytes")
            case types.ErrorCode_InternalError(text) if text:
                return ConnectionResetError(errno.ECONNRESET, f"{where}: {text}")
        name = type(code).__name__.removeprefix("ErrorCode_")
        return ConnectionResetError(errno.ECONNRESET, f"{where}: {name}")
