"""Clients of the console that do not get on, and requests without an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from holdfast_log.console import slow_clients
from holdfast_log.console.slow_clients import HEAD_BYTES_MAX, ImpatientProtocol

T = TypeVar("T")
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]
WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
ANSWERED = b"200 OK"
LOOK_S, LONG_S = 1_000.0, 10**9
WITHIN_S = 240.0
"""How long a busy machine may take."""


async def _short(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def _long(request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 20)
            await asyncio.sleep(0)  # The end of the connection is noticed between two pieces.

    return StreamingResponse(pieces())


async def _quiet(request: Request) -> Response:
    async def events() -> AsyncIterator[str]:
        yield "first\n\n"
        await asyncio.sleep(5 * slow_clients.LOOK_S)
        yield "second\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


class Served(NamedTuple):
    """A console's server in the event loop that runs, whose clock the test puts forward."""

    connect: Callable[[], Awaitable[Peer]]
    state: ServerState
    put_forward: Callable[[], None]
    """So far that every connection is looked at next."""

    async def look_until(self, is_so: Callable[[], bool]) -> None:
        """Have connections looked at, again and again, until something is so."""
        until_s = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < until_s
            self.put_forward()
            await asyncio.sleep(0.01)

    async def looked_at_until_done(self, wanted: Awaitable[T]) -> T:
        """What is waited for, while connections are looked at again and again."""
        waiting = asyncio.ensure_future(wanted)
        await self.look_until(waiting.done)
        return await waiting


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    routes = [
        Route("/", _short, methods=["GET", "POST"]), Route("/long", _long), Route("/quiet", _quiet)
    ]  # fmt: skip
    config = uvicorn.Config(
        Starlette(routes=routes), http=ImpatientProtocol, h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        lifespan="off", log_level="critical", timeout_keep_alive=LONG_S,
    )  # fmt: skip
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    now_s, ahead_s = loop.time, 0.0

    def put_forward() -> None:
        nonlocal ahead_s
        ahead_s += 1.1 * slow_clients.LOOK_S

    loop.time = lambda: now_s() + ahead_s  # type: ignore[method-assign]
    server = await loop.create_server(
        lambda: ImpatientProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    try:
        yield Served(lambda: asyncio.open_connection("127.0.0.1", port), state, put_forward)
    finally:
        server.close()
        for connection in list(state.connections):
            transport: Any = connection.transport
            transport.abort()


async def to_end(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the console closes the connection."""
    received = b""
    try:
        while data := await reader.read(1 << 16):
            received += data
    except ConnectionError:
        pass
    return received


@pytest.fixture(autouse=True)
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is looked at when the test puts the clock forward, and not while the machine is busy."""
    monkeypatch.setattr(slow_clients, "LOOK_S", LOOK_S)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this",
        WHOLE,
        WHOLE + b"GET / HTT",
    ],
    ids=["nothing", "half a head", "half a form", "nothing more", "half a second head"],
)
def test_a_connection_that_does_not_get_on_is_closed(sent: bytes) -> None:
    async def scenario() -> bytes:
        async with served() as console:
            reader, writer = await console.connect()
            writer.write(sent)
            answer = b""
            if sent.startswith(WHOLE):
                answer = await asyncio.wait_for(reader.readuntil(ANSWERED), WITHIN_S)
            return answer + await console.looked_at_until_done(to_end(reader))

    answer = asyncio.run(scenario())
    assert (ANSWERED in answer) == sent.startswith(WHOLE)


def test_an_answer_that_nobody_reads_ends() -> None:
    async def scenario() -> None:
        async with served() as console:
            reader, writer = await console.connect()
            writer.write(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(reader.read(1), WITHIN_S)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await console.look_until(lambda: not console.state.connections)
            reader._transport.resume_reading()  # type: ignore[attr-defined]
            # What the buffers have comes, and then the end.
            await asyncio.wait_for(to_end(reader), WITHIN_S)

    asyncio.run(scenario())


def test_a_quiet_stream_of_events_stays() -> None:
    async def scenario() -> bytes:
        async with served() as console:
            reader, writer = await console.connect()
            writer.write(b"GET /quiet HTTP/1.1\r\nHost: x\r\n\r\n")
            first = await asyncio.wait_for(reader.readuntil(b"first"), WITHIN_S)
            return first + await console.looked_at_until_done(reader.readuntil(b"second"))

    assert b"first" in asyncio.run(scenario())


def test_a_head_without_an_end_is_refused() -> None:
    async def scenario() -> bytes:
        async with served() as console:
            reader, writer = await console.connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (2 * HEAD_BYTES_MAX))
            return await asyncio.wait_for(to_end(reader), WITHIN_S)

    assert b"400" in asyncio.run(scenario())
