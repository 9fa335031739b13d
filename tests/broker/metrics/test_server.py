"""The HTTP server on real sockets: its pages, its refusals, its bounds."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.threads import deferToThread

from holdfast_log.broker.metrics.server import CONNECTIONS_MAX, MonitoringServer
from holdfast_log.broker.metrics.settings import HttpAddress, parse_address
from tests.reactor import on_reactor, reactor

LOOPBACK = HttpAddress("127.0.0.1", 0)
_TIMEOUT_S = 60


class Served:
    """A server whose broker is `reasons` away from being ready."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.page: Deferred[bytes] | None = None
        self.server = MonitoringServer(reactor, self.make, lambda: self.reasons)
        self.address = self.server.listen(LOOPBACK)

    def make(self) -> Deferred[bytes]:
        return succeed(b"metric 1\n") if self.page is None else self.page

    async def get(
        self, path: str, request: str = "GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    ) -> str:
        answer: str = await deferToThread(exchange, self.address, request.format(path).encode())
        return answer


def exchange(address: HttpAddress, sent: bytes) -> str:
    """All bytes that the server answers until it closes the connection."""
    with socket.create_connection(address, timeout=_TIMEOUT_S) as connection:
        connection.sendall(sent)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received.decode()


@contextmanager
def serving() -> Iterator[Served]:
    served = Served()
    try:
        yield served
    finally:
        served.server.stop()


@on_reactor
async def test_the_pages() -> None:
    with serving() as served:
        metrics = await served.get("/metrics")
        assert metrics.startswith("HTTP/1.1 200 ") and metrics.endswith("\r\n\r\nmetric 1\n")
        assert "text/plain; version=0.0.4" in metrics
        assert "200 OK" in await served.get("/healthz")
        assert (await served.get("/readyz")).endswith("ready\n")
        served.reasons = ["The broker is loading its logs."]
        unready = await served.get("/readyz")
        assert " 503 " in unready and unready.endswith("The broker is loading its logs.\n")
        assert "200 OK" in await served.get("/healthz")
        assert " 404 " in await served.get("/elsewhere")
        assert "/readyz" in await served.get("/")


@on_reactor
async def test_a_page_that_cannot_be_made_is_an_error_in_words() -> None:
    with serving() as served:
        served.page = fail(RuntimeError("broken"))
        answer = await served.get("/metrics")
        assert " 500 " in answer and "the broker's log says why" in answer


@on_reactor
async def test_a_client_that_leaves_before_its_page_is_made_disturbs_nobody() -> None:
    with serving() as served:
        served.page = Deferred()
        leaving = socket.create_connection(served.address, timeout=_TIMEOUT_S)
        leaving.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert "ok" in await served.get("/healthz")
        leaving.close()
        assert "ok" in await served.get("/healthz")
        served.page.callback(b"late\n")
        served.page = None
        assert "metric 1" in await served.get("/metrics")


@on_reactor
async def test_a_body_is_refused_and_not_kept() -> None:
    body = "x" * 300_000
    request = (
        f"POST {{}} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    with serving() as served:
        assert " 405 " in await served.get("/metrics", request)
        assert "ok" in await served.get("/healthz")


@on_reactor
async def test_bytes_that_are_not_http_get_an_error_or_a_closed_connection() -> None:
    with serving() as served:
        assert "200" not in await served.get("", "\x00\x01\x02\r\n\r\n")
        assert "ok" in await served.get("/healthz")


@on_reactor
async def test_further_connections_are_closed_at_once() -> None:
    with serving() as served:
        held = [socket.create_connection(served.address, timeout=_TIMEOUT_S) for _ in range(CONNECTIONS_MAX)]
        try:
            assert await deferToThread(exchange_or_nothing, served.address) == ""
        finally:
            for connection in held:
                connection.close()


def exchange_or_nothing(address: HttpAddress) -> str:
    try:
        return exchange(address, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    except ConnectionError:
        return ""


@on_reactor
async def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with (
        serving() as served,
        pytest.raises(OSError, match=r"another program uses the port: stop that program"),
    ):
        MonitoringServer(reactor, served.make, list).listen(served.address)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9404", HttpAddress("127.0.0.1", 9404)),
        ("monitor.example:0", HttpAddress("monitor.example", 0)),
        ("[::1]:9404", HttpAddress("::1", 9404)),
    ],
)
def test_an_address_is_parsed_and_written_back(text: str, address: HttpAddress) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "9404", ":9404", "host:", "host:70000", "::1:9404", "http://h:1", "h:1,i:2"]
)
def test_anything_else_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address(text)
