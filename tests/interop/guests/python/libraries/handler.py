"""Libraries and features that need the host's HTTP or files of packages, one `op` for each."""

import asyncio
import concurrent.futures
import datetime
import decimal
import gc
import logging
import os
import socket
import sqlite3
import threading
import urllib.request
import uuid
from typing import Any, NamedTuple, NotRequired, TypedDict

import aiohttp
import anyio
import httpx
import requests

import gristmill
from gristmill.runpod.serverless.utils import rp_download, rp_upload

logging.basicConfig(level=logging.DEBUG, format="%(levelname)s of %(name)s: %(message)s")
log = logging.getLogger("mill")

UPSTREAM = "UPSTREAM"


class Sack(NamedTuple):
    grain: str
    weight: decimal.Decimal


class Order(TypedDict):
    id: uuid.UUID
    due: datetime.datetime
    day: NotRequired[datetime.date]
    sacks: list[Sack]


class Input(TypedDict):
    op: str
    order: NotRequired[Order]
    bucket: NotRequired[dict[str, str]]


def upstream(path: str) -> str:
    return os.environ[UPSTREAM] + path


left_open = 0


async def leave_open() -> int:
    """Ends with an answer that has not ended."""
    global left_open
    left_open += 1
    client = httpx.AsyncClient(timeout=60)
    request = client.build_request("GET", upstream("/endless"))
    return (await client.send(request, stream=True)).status_code


def collect() -> int:
    """How many answers the jobs of this instance have left open."""
    gc.collect()
    return left_open


def pieces_after_the_server_saw_them():
    """A request's body; the second piece waits until the server has read the first."""
    yield b"first"
    yield requests.get(upstream("/was-read"), timeout=60).content


async def pieces():
    yield b"first"
    async with httpx.AsyncClient(timeout=60) as client:
        yield (await client.get(upstream("/was-read"))).content


async def together(get) -> list[str]:
    """The server answers none of them until it has all three."""
    return await asyncio.gather(*(get(upstream("/meet")) for _ in range(3)))


async def with_httpx() -> list[str]:
    async with httpx.AsyncClient(timeout=60) as client:

        async def get(url):
            return (await client.get(url)).text

        return await together(get)


async def with_aiohttp() -> list[str]:
    async with aiohttp.ClientSession() as session:

        async def get(url):
            async with session.get(url) as response:
                return await response.text()

        return await together(get)


async def upload() -> str:
    async with httpx.AsyncClient(timeout=60) as client:
        return (await client.post(upstream("/read"), content=pieces())).text


async def in_other_threads() -> list[Any]:
    loop = asyncio.get_running_loop()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [
            await asyncio.to_thread(sum, [1, 2]),
            await loop.run_in_executor(None, max, 1, 2),
            await loop.run_in_executor(pool, min, 1, 2),
            [*pool.map(abs, [-1, -2])],
            await anyio.to_thread.run_sync(max, 5, 6),
        ]


def by_a_thread() -> list[int]:
    found: list[int] = []
    thread = threading.Thread(target=found.append, args=(1,))
    thread.start()
    thread.join()
    return found


def waiting_for_a_thread() -> str:
    try:
        threading.Event().wait()
    except RuntimeError as error:
        return str(error)
    return "?"


def by_socket() -> str:
    try:
        with socket.create_connection(("127.0.0.1", 5432)) as connection:
            connection.sendall(b"\0\0\0\x08\x04\xd2\x16/")
    except OSError as error:
        return str(error)
    return "?"


def refused(get, error) -> str:
    try:
        get("https://example.com/")
    except error as caught:
        return str(caught)
    return "?"


def write_log() -> int:
    log.debug("a detail")
    log.warning("a warning")
    return logging.getLogger().level


def with_markdown() -> str:
    import markdown  # finds "tables" by its entry points

    return markdown.markdown("a|b\n-|-\n1|2", extensions=["tables"])


def with_resources() -> list[Any]:
    from importlib import metadata, resources

    import certifi

    return [
        metadata.version("httpx"),
        len(resources.files("certifi").joinpath("cacert.pem").read_bytes()) > 100_000,
        os.path.getsize(certifi.where()) > 100_000,
        any(entry.name == "tables" for entry in metadata.entry_points(group="markdown.extensions")),
    ]


def with_zones() -> str:
    from zoneinfo import ZoneInfo

    return datetime.datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")).isoformat()


def every_module() -> list[str]:
    """The modules of the standard library that cannot be imported."""
    import importlib
    import pkgutil

    failed = []
    directory = os.path.dirname(logging.__path__[0])
    for module in pkgutil.iter_modules([directory]):
        if module.name not in ("__main__", "antigravity", "idlelib", "this", "turtle"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                failed.append(module.name)
    return sorted(failed)


def transaction(spins: bool) -> int:
    """Adds a row to a database on the volume, or never ends the transaction."""
    connection = sqlite3.connect("/workspace/grain.db", timeout=5, isolation_level=None)
    connection.execute("create table if not exists sacks (number integer)")
    connection.execute("begin immediate")
    connection.execute("insert into sacks values (1)")
    while spins:
        pass
    connection.execute("commit")
    return connection.execute("select count(*) from sacks").fetchone()[0]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def machine_code() -> Any:
    import pydantic  # not at the top, where it fails the build

    return pydantic.BaseModel


def through_a_bucket(bucket: dict[str, str]) -> list[Any]:
    small = rp_upload.upload_in_memory_object("a b.txt", b"flour", bucket, "sacks", "job")
    big = rp_upload.upload_in_memory_object("big", b"x" * (9 << 20), bucket, "sacks")
    with urllib.request.urlopen(small) as response:
        return [
            response.read().decode(),
            response.headers["content-type"],
            "job/a%20b.txt" in small,
            big,
        ]


OPS = {
    "sqlite": lambda: transaction(False),
    "sqlite-spin": lambda: transaction(True),
    "requests": lambda: requests.post(upstream("/echo"), json={"a": 1}, timeout=60).json(),
    "urllib": lambda: urllib.request.urlopen(upstream("/echo"), data=b"abc").read().decode(),
    "httpx": lambda: httpx.post(upstream("/echo"), json={"a": 1}, timeout=60).json(),
    "upload-requests": lambda: (
        requests.post(upstream("/read"), data=pieces_after_the_server_saw_them(), timeout=60).text
    ),
    "upload-httpx": lambda: asyncio.run(upload()),
    "together-httpx": lambda: asyncio.run(with_httpx()),
    "together-aiohttp": lambda: asyncio.run(with_aiohttp()),
    "cut-off": lambda: refused(
        lambda _: requests.get(upstream("/cut-off"), timeout=60), requests.RequestException
    ),
    "denied-requests": lambda: refused(requests.get, requests.RequestException),
    "denied-httpx": lambda: refused(httpx.get, httpx.HTTPError),
    "leave-open": lambda: asyncio.run(leave_open()),
    "collect": collect,
    "threads": lambda: asyncio.run(in_other_threads()),
    "thread": by_a_thread,
    "stuck-thread": waiting_for_a_thread,
    "socket": by_socket,
    "log": write_log,
    "markdown": with_markdown,
    "resources": with_resources,
    "zones": with_zones,
    "modules": every_module,
    "late": lambda: __import__("csv").__name__,
    "too-deep": lambda: nested(3000),
    "machine-code": machine_code,
    "runpod": lambda: __import__("runpod"),
    "download": lambda: rp_download.file(upstream("/file"))["original_name"],
}


@gristmill.handler
def handler(ctx: gristmill.Context, input: Input) -> Any:
    if input["op"] == "stream":
        return stream()
    if input["op"] == "order":
        order = input["order"]
        return [type(order["due"]).__name__, type(order["id"]).__name__, order]
    if input["op"] == "bucket":
        return through_a_bucket(input["bucket"])
    if input["op"] == "bucket-never-complete":
        big = b"x" * (9 << 20)
        return rp_upload.upload_in_memory_object("never-complete", big, input["bucket"], "sacks")
    return OPS[input["op"]]()


def stream():
    """The lines of a response, when they arrive."""
    with requests.get(upstream("/lines"), stream=True, timeout=60) as response:
        for line in response.iter_lines():
            yield line.decode()
