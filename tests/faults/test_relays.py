"""A cut holds back both directions silently; the bytes arrive when it is healed."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from holdfast_log.broker.tools.place import Place
from holdfast_log.broker.tools.relays import Relays, local_ports

TIMEOUT_S = 60.0
SHORT_S = 0.3
"""Seconds to wait before concluding that nothing arrives."""


class Echo:
    """A server that sends back every byte it receives."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        while chunk := connection.recv(4096):
            connection.sendall(chunk)
        connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def relays() -> Iterator[Relays]:
    made = Relays()
    yield made
    made.close()


@pytest.fixture
def zookeeper() -> Iterator[Echo]:
    server = Echo(0)
    yield server
    server.close()


@pytest.fixture
def place(relays: Relays, zookeeper: Echo) -> Iterator[Place]:
    """The place of broker 1, where an echo server listens."""
    found = relays.place(1, f"127.0.0.1:{zookeeper.port}")
    broker = Echo(found.port)
    yield found
    broker.close()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def hears(connection: socket.socket, timeout_s: float = TIMEOUT_S) -> bytes:
    connection.settimeout(timeout_s)
    try:
        return connection.recv(4096)
    except TimeoutError:
        return b"(nothing)"


NOBODY = 0
"""Process id of no process, for a cut without a broker process."""


def test_relays_without_a_cut_pass_bytes_in_both_directions(place: Place) -> None:
    with connect(place.address) as client:
        client.sendall(b"hello")
        assert hears(client) == b"hello"


def test_a_cut_holds_back_old_and_new_connections_until_it_is_healed(relays: Relays, place: Place) -> None:
    with connect(place.address) as old:
        old.sendall(b"before")
        assert hears(old) == b"before"
        relays.cut(1, NOBODY)
        old.sendall(b"meanwhile")
        with connect(place.address) as new:
            new.sendall(b"a new connection")
            assert hears(old, SHORT_S) == hears(new, SHORT_S) == b"(nothing)"
            relays.heal(1)
            assert hears(new) == b"a new connection"
        assert hears(old) == b"meanwhile"


def test_a_broker_that_is_cut_off_does_not_reach_zookeeper(relays: Relays, place: Place) -> None:
    with connect(place.zookeeper_connect) as session:
        relays.cut(1, NOBODY)
        session.sendall(b"ping")
        assert hears(session, SHORT_S) == b"(nothing)"
        relays.heal(1)
        assert hears(session) == b"ping"


def test_a_broker_that_is_cut_off_does_not_reach_the_others(relays: Relays, place: Place) -> None:
    other = relays.place(2, place.zookeeper_connect)
    with connect(place.address) as before:
        before.sendall(b"before")
        assert hears(before) == b"before"
        # This process acts as broker 2, which is cut off; broker 1 is not.
        relays.cut(2, os.getpid())
        with connect(place.address) as during:
            before.sendall(b"from before")
            during.sendall(b"from during")
            assert hears(before, SHORT_S) == hears(during, SHORT_S) == b"(nothing)"
            relays.heal(2)
            assert hears(before) == b"from before"
            assert hears(during) == b"from during"
    assert other.port != place.port


def test_a_connection_closed_at_one_end_is_closed_at_the_other(place: Place) -> None:
    with connect(place.address) as client:
        client.sendall(b"hello")
        assert hears(client) == b"hello"
        client.shutdown(socket.SHUT_WR)
        assert hears(client) == b""


def test_local_ports_lists_the_ports_of_open_connections(place: Place) -> None:
    with connect(place.address) as client:
        assert client.getsockname()[1] in local_ports(os.getpid())
    assert local_ports(1 << 30) == set()


def test_a_broker_cut_off_from_zookeeper_alone_is_reached_by_clients(relays: Relays, place: Place) -> None:
    with connect(place.zookeeper_connect) as session, connect(place.address) as client:
        relays.cut_from_zookeeper(1)
        session.sendall(b"ping")
        client.sendall(b"hello")
        assert hears(client) == b"hello"
        with connect(place.zookeeper_connect) as new:
            new.sendall(b"a new session")
            assert hears(session, SHORT_S) == hears(new, SHORT_S) == b"(nothing)"
            relays.heal(1)
            assert hears(session) == b"ping"
            assert hears(new) == b"a new session"


def test_a_broker_cut_off_from_its_peers_reaches_zookeeper(relays: Relays, place: Place) -> None:
    with connect(place.zookeeper_connect) as session, connect(place.address) as client:
        relays.cut_from_peers(1, NOBODY)
        client.sendall(b"hello")
        session.sendall(b"ping")
        assert hears(session) == b"ping"
        assert hears(client, SHORT_S) == b"(nothing)"
        relays.heal(1)
        assert hears(client) == b"hello"
