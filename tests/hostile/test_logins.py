"""Floods of logins, by clients that are nobody and by one that has authenticated and has no right beyond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from holdfast_log.protocol.sasl.mechanisms import PLAIN
from tests.hostile.report import GROWTH_BYTES_MAX
from tests.hostile.slow_strangers import Stranger, running_broker
from tests.integration.raw_socket import RawSocket

HANDSHAKE = SaslHandshakeRequest(mechanism=PLAIN)
PATIENT = {"zookeeper_session_timeout_ms": "60000"}
"""On a busy machine a broker, or ZooKeeper, may not run for seconds."""
AHEAD = 50
"""Requests sent before the first is answered."""


@pytest.fixture(scope="module")
def broker(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    directory = tmp_path_factory.mktemp("logins")
    with running_broker(directory, f"{zookeeper_server}/{directory.name}", **PATIENT) as found:
        yield found


def is_served(broker: Stranger) -> bool:
    """Whether a client of the listener without logins is."""
    with RawSocket(broker.broker.port) as client:
        return bool(client.call(MetadataRequest(topics=[]), 4).brokers)


def logged_in(broker: Stranger) -> RawSocket:
    client = RawSocket(broker.sasl_port)
    client.call(HANDSHAKE)
    assert client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0in time")).error_code == 0
    return client


def test_large_tokens_of_many_strangers_are_refused_and_leave_no_memory(broker: Stranger) -> None:
    before = broker.memory_bytes()
    token = SaslAuthenticateRequest(auth_bytes=b"\0" + b"x" * 30_000 + b"\0" + b"y" * 30_000)
    refused = closed = 0
    for _ in range(5):
        with ExitStack() as stack:
            clients = [stack.enter_context(RawSocket(broker.sasl_port)) for _ in range(100)]
            for client in clients:
                client.send_request(HANDSHAKE)
                client.send_request(token)
                client.send_request(token)
            for client in clients:
                assert client.next_frame() is not None, "the handshake is answered"
                refused += client.next_frame() is not None
                closed += client.next_frame() is None
    assert (refused, closed) == (500, 500), "one wrong password ends a connection"
    assert broker.memory_bytes() - before <= GROWTH_BYTES_MAX
    assert is_served(broker)


def test_a_token_beyond_the_limit_closes_the_connection_when_it_is_announced(broker: Stranger) -> None:
    for _ in range(50):
        with RawSocket(broker.sasl_port) as client:
            client.call(HANDSHAKE)
            client.send(((1 << 16) + 1).to_bytes(4))
            assert client.is_hung_up()
    assert is_served(broker)


def test_who_has_authenticated_may_not_do_so_again_and_again(broker: Stranger) -> None:
    before = broker.memory_bytes()
    with logged_in(broker) as client:
        codes: Counter[int] = Counter()
        for _ in range(100):
            for _ in range(AHEAD):
                client.send_request(HANDSHAKE)
            frames = [client.next_frame() for _ in range(AHEAD)]
            codes.update(int.from_bytes(frame[4:6]) for frame in frames if frame is not None)
            if None in frames:
                break  # A second after the login one begins another, and the next one ends the connection.
        assert set(codes) <= {0, ErrorCode.ILLEGAL_SASL_STATE} and codes[0] <= 1, codes
    assert broker.memory_bytes() - before <= GROWTH_BYTES_MAX
    assert is_served(broker)
    with logged_in(broker) as again:
        assert again.call(MetadataRequest(topics=[]), 4).brokers
