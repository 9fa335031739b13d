"""The HTTP server on real sockets: its pages, its refusals, its bounds."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.internet.threads import deferToThread

from holdfast_log.broker.metrics import pages_on_their_way
from holdfast_log.broker.metrics.pages_on_their_way import SENT_WITHIN_S, PagesOnTheirWay
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
        self.asked = 0
        self.server = MonitoringServer(reactor, self.make, lambda: self.reasons)
        self.address = self.server.listen(LOOPBACK)

    def make(self) -> Deferred[bytes]:
        self.asked += 1
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


def silent_connections(address: HttpAddress, count: int) -> list[socket.socket]:
    return [socket.create_connection(address, timeout=_TIMEOUT_S) for _ in range(count)]


@on_reactor
async def test_strangers_who_hold_all_connections_keep_nobody_out() -> None:
    with serving() as served:
        held = await deferToThread(silent_connections, served.address, 2 * CONNECTIONS_MAX)
        try:
            assert "ok" in await served.get("/healthz")
            for connection in held[: CONNECTIONS_MAX + 1]:
                assert await deferToThread(is_closed, connection)
        finally:
            for connection in held:
                connection.close()


def is_closed(connection: socket.socket) -> bool:
    """Waits until the server closes the connection. Raises TimeoutError if it does not."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@on_reactor
async def test_a_connection_of_an_address_with_few_stays_when_another_address_takes_all() -> None:
    with serving() as served:
        supervisor = socket.create_connection(
            served.address, timeout=_TIMEOUT_S, source_address=("127.0.0.2", 0)
        )
        held: list[socket.socket] = []
        try:
            assert "ok" in await served.get("/healthz")
            held = await deferToThread(silent_connections, served.address, 2 * CONNECTIONS_MAX)
            supervisor.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await deferToThread(supervisor.recv, 65536)).startswith(b"HTTP/1.1 200 ")
        finally:
            for connection in (supervisor, *held):
                connection.close()


@on_reactor
async def test_a_long_page_is_sent_whole_to_who_reads_slowly() -> None:
    with serving() as served:
        page = b"".join(b"metric %d\n" % number for number in range(400_000))
        served.page = succeed(page)
        answer = await served.get("/metrics")
        assert answer.partition("\r\n\r\n")[2] == page.decode()


@on_reactor
async def test_pages_that_nobody_reads_are_given_up_for_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_on_their_way, "BYTES_MAX", 30_000_000)
    with serving() as served:
        page = b"x" * 8_000_000  # More than the system's buffers take.
        unread = []
        try:
            for _ in range(5):
                served.page = Deferred()
                connection = socket.create_connection(served.address, timeout=_TIMEOUT_S)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                unread.append(connection)
                while not served.asked:
                    await served.get("/healthz")
                served.asked = 0
                served.page.callback(page)
            served.page = None
            assert "metric 1" in await served.get("/metrics")
            first, *_, last = unread
            assert await deferToThread(length_read, first) < len(page)
            assert await deferToThread(length_read, last) >= len(page)
        finally:
            for connection in unread:
                connection.close()


def length_read(connection: socket.socket) -> int:
    """How many bytes come until the connection is closed, or a whole page of 8 MB has come."""
    length = 0
    try:
        while length < 8_000_000 and (chunk := connection.recv(1 << 20)):
            length += len(chunk)
    except ConnectionError:
        pass
    return length


def test_a_page_that_is_not_read_in_time_is_given_up() -> None:
    clock, request = Clock(), Unread()
    PagesOnTheirWay(clock).send(request, b"x" * 1_000_000)
    clock.advance(SENT_WITHIN_S - 1)
    assert not request.is_aborted and request.written < 1_000_000
    clock.advance(2)
    assert request.is_aborted


class Unread:
    """A request whose client reads nothing."""

    def __init__(self) -> None:
        self.written = 0
        self.is_aborted = False
        self.transport = self

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._producer = producer

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._producer.pauseProducing()

    def abortConnection(self) -> None:
        self.is_aborted = True


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
