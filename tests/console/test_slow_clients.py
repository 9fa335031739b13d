"""Clients of the console that do not get on, and requests without an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from holdfast_log.console import slow_clients
from holdfast_log.console.slow_clients import HEAD_BYTES_MAX, ImpatientProtocol

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]
WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


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


@asynccontextmanager
async def served() -> AsyncIterator[Callable[[], Awaitable[Peer]]]:
    routes = [
        Route("/", _short, methods=["GET", "POST"]), Route("/long", _long), Route("/quiet", _quiet)
    ]  # fmt: skip
    config = uvicorn.Config(
        Starlette(routes=routes), http=ImpatientProtocol, h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        lifespan="off", log_level="critical",
    )  # fmt: skip
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: ImpatientProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    try:
        yield lambda: asyncio.open_connection("127.0.0.1", port)
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
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "LOOK_S", 0.2)


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
        async with served() as connect:
            reader, writer = await connect()
            writer.write(sent)
            return await asyncio.wait_for(to_end(reader), 60)

    answer = asyncio.run(scenario())
    assert (b"200 OK" in answer) == sent.startswith(WHOLE)


def test_an_answer_that_nobody_reads_ends() -> None:
    async def scenario() -> None:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.read(1)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.sleep(5 * slow_clients.LOOK_S)
            reader._transport.resume_reading()  # type: ignore[attr-defined]
            # What the buffers have comes, and then the end.
            await asyncio.wait_for(to_end(reader), 60)

    asyncio.run(scenario())


def test_a_quiet_stream_of_events_stays() -> None:
    async def scenario() -> bytes:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(b"GET /quiet HTTP/1.1\r\nHost: x\r\n\r\n")
            return await asyncio.wait_for(reader.readuntil(b"second"), 60)

    assert b"first" in asyncio.run(scenario())


def test_a_head_without_an_end_is_refused() -> None:
    async def scenario() -> bytes:
        async with served() as connect:
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (2 * HEAD_BYTES_MAX))
            return await asyncio.wait_for(to_end(reader), 60)

    assert b"400" in asyncio.run(scenario())
