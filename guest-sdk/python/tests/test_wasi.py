"""The order in which requests of a component drop the host's resources, which are fakes here."""

import asyncio
import gc
import importlib
import itertools
import sys
import unittest
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

from gristmill import _loop
from gristmill._connection import Connection


class Host:
    """Records what is dropped, and which drops would end the instance."""

    def __init__(self) -> None:
        self.keys = itertools.count()
        self.live: dict[int, tuple[str, int | None]] = {}
        """The names of the resources that are not dropped, and their parents."""
        self.dropped: list[str] = []
        self.faults: list[str] = []
        self.room: list[int] = []
        """The bytes that a request's body takes, a number for each time that it is asked."""
        self.refuses = False

    def add(self, name: str, parent: int | None) -> int:
        key = next(self.keys)
        self.live[key] = (name, parent)
        return key

    def drop(self, key: int) -> None:
        name, _ = self.live.pop(key)
        children = [name for name, parent in self.live.values() if parent == key]
        if children:
            self.faults.append(f"{name} is dropped before {children}")
        self.dropped.append(name)

    def poll(self, pollables: list[Any]) -> list[int]:
        for pollable in pollables:
            if pollable.key not in self.live:
                self.faults.append("a pollable is polled after it was dropped")
        ready = [index for index, pollable in enumerate(pollables) if pollable.is_ready(self)]
        assert ready, "nothing will ever be ready"
        return ready


class Resource:
    """A resource as componentize-py makes it: the garbage collector drops it in any order."""

    is_ready: Callable[[Host], bool] = staticmethod(lambda host: False)

    def __init__(self, host: Host, parent: "Resource | None" = None) -> None:
        self.host = host
        self.key = host.add(type(self).__name__, parent.key if parent else None)
        self.finalizer = weakref.finalize(self, host.drop, self.key)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        _, drop, args, _ = self.finalizer.detach()
        drop(*args)

    def subscribe(self) -> "Pollable":
        pollable = Pollable(self.host, self)
        pollable.is_ready = self.is_ready
        return pollable


class Pollable(Resource):
    pass


class Timer(Resource):
    is_ready = staticmethod(lambda host: True)


class Future(Resource):
    is_ready = staticmethod(lambda host: True)

    def get(self) -> "Ok":
        return Ok(Ok(Response(self.host)))


class Fields(Resource):
    def entries(self) -> list[tuple[str, bytes]]:
        return []


class Response(Resource):
    def headers(self) -> Fields:
        return Fields(self.host, self)

    def status(self) -> int:
        return 200

    def consume(self) -> "IncomingBody":
        return IncomingBody(self.host)


class IncomingBody(Resource):
    def stream(self) -> "InputStream":
        return InputStream(self.host, self)


class InputStream(Resource):
    """A body whose bytes do not arrive."""

    def read(self, most: int) -> bytes:
        return b""


class OutgoingRequest(Resource):
    set_method = set_scheme = set_authority = set_path_with_query = lambda self, value: None

    def body(self) -> "OutgoingBody":
        return OutgoingBody(self.host)


class OutgoingBody(Resource):
    def write(self) -> "OutputStream":
        return OutputStream(self.host, self)

    @staticmethod
    def finish(body: "OutgoingBody", trailers: None) -> None:
        body.__exit__()


class OutputStream(Resource):
    is_ready = staticmethod(lambda host: bool(host.room))

    def check_write(self) -> int:
        return self.host.room.pop(0)

    def write(self, data: bytes) -> None:
        pass


class Err(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass
class Ok:
    value: Any


class Denied:
    """The error code of a host that is not allowed."""


def load(host: Host) -> Any:
    """The module that only a component has otherwise."""

    def handle(request: OutgoingRequest, options: None) -> Future:
        request.__exit__()
        if host.refuses:
            raise Err(Denied())
        return Future(host)

    types = mock.MagicMock(
        OutgoingRequest=lambda fields: OutgoingRequest(host),
        OutgoingBody=OutgoingBody,
        ErrorCode_HttpRequestDenied=Denied,
    )
    imports = SimpleNamespace(
        monotonic_clock=SimpleNamespace(subscribe_duration=lambda duration: Timer(host)),
        outgoing_handler=SimpleNamespace(handle=handle),
        poll=SimpleNamespace(poll=host.poll),
        streams=mock.MagicMock(),
        wasi_http_types=types,
    )
    modules: dict[str, Any] = {
        "componentize_py_types": SimpleNamespace(Err=Err, Ok=Ok),
        "wit_world": SimpleNamespace(imports=imports),
        "wit_world.imports": imports,
    }
    with mock.patch.dict(sys.modules, modules):
        return importlib.import_module("gristmill._wasi")


class Client(asyncio.Protocol):
    """Waits for the first bytes of an answer."""

    def __init__(self) -> None:
        self.head = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self.head.done():
            self.head.set_result(data)


async def ask(*parts: bytes) -> None:
    """Ends with an answer that has not ended."""
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(Client, "mill.example", 80)
    for part in parts or [b"GET / HTTP/1.1\r\n\r\n"]:
        transport.write(part)
    await client.head


def run(*parts: bytes) -> None:
    with asyncio.Runner(loop_factory=_loop.ComponentLoop) as runner:
        runner.run(ask(*parts))


CHILDREN_FIRST = ["Pollable", "InputStream", "IncomingBody", "Response", "Future"]


class LeftOpen(unittest.TestCase):
    def setUp(self) -> None:
        self.host = Host()
        self.wasi = load(self.host)
        for name, value in [
            ("_open", self.wasi.Exchange),
            ("_wait", self.wasi.wait),
            ("_drop", self.wasi.drop),
        ]:
            patch = mock.patch.object(_loop, name, value, create=True)
            patch.start()
            self.addCleanup(patch.stop)

    def end_of_job(self) -> None:
        _loop.end_waits()
        self.wasi.close_all()
        self.assertEqual(self.host.live, {})
        self.assertEqual(self.host.faults, [])

    def test_the_end_of_a_job_drops_children_before_their_parents(self) -> None:
        gc.disable()  # which would be first
        self.addCleanup(gc.enable)
        run()
        self.assertEqual(len(self.host.live), len(CHILDREN_FIRST))
        self.end_of_job()
        self.assertEqual(self.host.dropped[-5:], CHILDREN_FIRST)

    def test_the_garbage_collector_drops_children_before_their_parents(self) -> None:
        run()
        gc.collect()
        self.assertEqual(self.host.faults, [])
        self.assertEqual(self.host.dropped[-5:], CHILDREN_FIRST)
        self.end_of_job()

    def test_a_loop_that_is_kept_for_later_jobs_waits_for_nothing_of_earlier_ones(self) -> None:
        loop = _loop.ComponentLoop()
        self.addCleanup(loop.close)
        for _ in range(3):
            loop.run_until_complete(ask())
            self.end_of_job()

    def test_an_answer_that_is_kept_for_a_later_job_is_an_error(self) -> None:
        connection = Connection(self.wasi.Exchange, "mill.example", 80)
        connection.feed(b"GET / HTTP/1.1\r\n\r\n")
        self.assertIn(b"200 OK", connection.pull(1000) or b"")
        self.assertIsNone(connection.pull(1000))
        self.end_of_job()
        for wait in (lambda: connection.pull(1000), connection.until_readable):
            with self.assertRaisesRegex(ConnectionAbortedError, "mill.example: .*has ended"):
                wait()

    def test_a_body_that_ends_while_it_waits_for_room_drops_the_wait_first(self) -> None:
        self.host.room = [0, 0, 100]
        run(b"PUT / HTTP/1.1\r\ncontent-length: 6\r\n\r\nabc", b"def")
        self.assertIn("OutputStream", self.host.dropped)
        self.end_of_job()

    def test_a_request_that_is_refused_leaves_nothing(self) -> None:
        self.host.refuses = True
        connection = Connection(self.wasi.Exchange, "mill.example", 80)
        with self.assertRaisesRegex(PermissionError, "to http://mill.*gristmill.toml"):
            connection.feed(b"PUT / HTTP/1.1\r\ncontent-length: 6\r\n\r\n")
        self.assertEqual(self.host.live, {})
        self.assertEqual(self.host.faults, [])


if __name__ == "__main__":
    unittest.main()
