"""A broker that lies to its clients, on real sockets: a fake cluster whose answers one lie changes.

Each answer is first that of an honest fake broker, so that clients get far enough to meet all of their own
code.
"""

from __future__ import annotations

import dataclasses
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from holdfast_log.protocol.api import Response
from holdfast_log.protocol.batches import Compression, assign
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.fields import Array, Struct, fields_of
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import RequestHeader, encode_response
from holdfast_log.protocol.messages.fetch import FetchResponse
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorResponse
from holdfast_log.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
)
from holdfast_log.testing.fakes.fake_broker import FakeBroker, FakeChannel
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.models.batches import batch

HOST = "127.0.0.1"
TOPIC = "flights"
_POLL_S = 0.005
_MIB = 1 << 20
_VERSIONS_KEY = 18

Lie: TypeAlias = Callable[["Liar", FakeChannel, RequestHeader, Response], None]
"""Sends something in place of an honest answer."""


class Liar:
    """One broker of a fake cluster, on a port of its own."""

    def __init__(self, broker: FakeBroker, lie: Lie) -> None:
        self.broker = broker
        self.port = 0
        self.asked = 0
        """How many requests have been answered, or not."""
        self.drips: dict[FakeChannel, bytearray] = {}
        """What leaves a byte a second, by connection."""
        self._lie = lie
        broker._send = self._send  # type: ignore[method-assign]

    def _send(self, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
        self.asked += 1
        self._locate(response)
        if header.api_key == _VERSIONS_KEY:
            self.honest(channel, header, response)
        else:
            self._lie(self, channel, header, response)

    def _locate(self, response: Response) -> None:
        """Name this port where the fake cluster names hosts that do not exist."""
        if isinstance(response, MetadataResponse):
            for each in response.brokers:
                each.host, each.port = HOST, self.port
        elif isinstance(response, FindCoordinatorResponse):
            for row in _coordinators(response):
                row.host, row.port = HOST, self.port

    def honest(self, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
        """Send the answer as it is."""
        channel.outbox += self.encoded(header, response)

    def encoded(self, header: RequestHeader, response: Response) -> bytes:
        return join_parts(encode_response(response, header.api_version, header.correlation_id))


def _coordinators(response: FindCoordinatorResponse) -> Sequence[Any]:
    """What names a coordinator: its rows, or in old versions the response itself."""
    return response.coordinators or [response]


# -- lies ----------------------------------------------------------------------------------------------------


def truth(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """No lie: every client has to get what it wants."""
    liar.honest(channel, header, response)


def huge_length(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each answer announces 256 MiB, and brings 64 KiB."""
    channel.outbox += SIZE.pack(256 * _MIB) + header.correlation_id.to_bytes(4) + bytes(64 << 10)


def larger_than_asked(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each answer to a fetch has 200 MiB, and so has any other."""
    frame = liar.encoded(header, response)[4:]
    channel.outbox += SIZE.pack(200 * _MIB) + frame + bytes(200 * _MIB - len(frame))


def throttled(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each answer asks for a pause of 2^31 - 1 ms."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = 2**31 - 1
    liar.honest(channel, header, response)


def elsewhere(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each answer sends the client to another broker, which the metadata name anew each time."""
    if isinstance(response, MetadataResponse):
        node = 1000 + liar.asked
        response.brokers = [MetadataResponseBroker(node_id=node, host=HOST, port=liar.port)]
        response.controller_id = node
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_id, partition.leader_epoch = node, liar.asked
    elif isinstance(response, FindCoordinatorResponse):
        for row in _coordinators(response):
            row.node_id = 1000 + liar.asked
    else:
        refuse(response, header.api_version, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    liar.honest(channel, header, response)


def refuse(message: Any, version: int, code: int) -> None:
    """Put an error into a message of a version, and into all rows in it."""
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if version not in field.versions:
            continue
        if field.name == "error_code":
            message.error_code = code
        elif isinstance(field.type, Array) and isinstance(field.type.element, Struct):
            for row in value or ():
                refuse(row, version, code)


def unknown_errors(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each answer has an error of a number that no version of Kafka has."""
    refuse(response, header.api_version, 999)
    liar.honest(channel, header, response)


def nothing_asked(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each answer has none of the rows that were asked for."""
    if not isinstance(response, MetadataResponse | FindCoordinatorResponse):
        for field in fields_of(type(response)):
            if isinstance(field.type, Array):
                setattr(response, field.name, [])
    liar.honest(channel, header, response)


def to_others(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each answer belongs to another request."""
    liar.honest(channel, header._replace(correlation_id=header.correlation_id + 7), response)


def silence(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """No request but the first of a connection is answered."""


def drips(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each answer comes a byte a second."""
    liar.drips.setdefault(channel, bytearray()).extend(liar.encoded(header, response))


def garbage(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each answer is one of HTTP."""
    channel.outbox += b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"


def hang_up(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """The connection ends in place of each answer."""
    channel.cut()


def crowd(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """The metadata name 50,000 brokers that nobody reaches, and a topic of 100,000 partitions."""
    if isinstance(response, MetadataResponse):
        response.brokers += [
            MetadataResponseBroker(node_id=2 + number, host=f"{number}.invalid", port=1)
            for number in range(50_000)
        ]
        for topic in response.topics:
            topic.partitions = [
                MetadataResponsePartition(
                    error_code=0, partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1],
                    isr_nodes=[1], offline_replicas=[],
                )
                for index in range(100_000)
            ]  # fmt: skip
    liar.honest(channel, header, response)


_BOMB = batch(bytes(150 * _MIB), compression=Compression.ZSTD)


def bomb(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each fetch returns a batch of a few KB that is 150 MiB."""
    if isinstance(response, FetchResponse):
        for topic in response.responses:
            for row in topic.partitions:
                row.records, row.high_watermark, row.error_code = _BOMB, 100, 0
    liar.honest(channel, header, response)


def far_offsets(liar: Liar, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
    """Each fetch returns a batch whose offsets are near 2^63, and offsets are near it wherever they are."""
    if isinstance(response, FetchResponse):
        for topic in response.responses:
            for row in topic.partitions:
                records = bytearray(batch(b"x"))
                assign(records, 0, 2**62, 0)
                row.records, row.high_watermark, row.error_code = bytes(records), 2**63 - 1, 0
    else:
        _set_offsets(response, header.api_version)
    liar.honest(channel, header, response)


def _set_offsets(message: Any, version: int) -> None:
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if version not in field.versions:
            continue
        if field.name in ("offset", "base_offset", "committed_offset", "end_offset", "log_start_offset"):
            setattr(message, field.name, 2**63 - 1)
        elif isinstance(field.type, Array) and isinstance(field.type.element, Struct):
            for row in value or ():
                _set_offsets(row, version)


LIES: tuple[Lie, ...] = (
    truth, huge_length, larger_than_asked, throttled, elsewhere, unknown_errors, nothing_asked, to_others,
    silence, drips, garbage, hang_up, crowd, bomb, far_offsets,
)  # fmt: skip


# -- sockets -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class _Connection:
    socket: socket.socket
    channel: FakeChannel


class LyingBroker:
    """Serves a fake cluster of one broker on a port, until `stop` is set."""

    def __init__(self, lie: Lie, records: int = 20) -> None:
        self.cluster = FakeCluster()
        (partition,) = self.cluster.add_topic(TOPIC)
        for number in range(records):
            partition.append(memoryview(bytearray(batch(b"%d" % number))))
        (broker,) = self.cluster.brokers.values()
        self.liar = Liar(broker, lie)
        self.accepted = 0
        self._listener = socket.create_server((HOST, 0))
        self._listener.setblocking(False)
        self.liar.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._connections: list[_Connection] = []
        self._began_s = time.monotonic()
        self._dripped_s = 0

    @property
    def asked(self) -> int:
        """Requests that have come, and connections."""
        return self.liar.asked + self.accepted

    def serve(self, stops: Callable[[], bool]) -> None:
        """Serve until `stops()`."""
        while not stops():
            for key, _ in self._selector.select(_POLL_S):
                if key.data is None:
                    self._accept()
                else:
                    self._receive(key.data)
            self._tell_time()
            self.cluster.serve()
            for connection in list(self._connections):
                self._send(connection)

    def _tell_time(self) -> None:
        now_s = time.monotonic() - self._began_s
        self.cluster.time_ms = int(now_s * 1000)
        if now_s > self._dripped_s + 1:
            self._dripped_s = int(now_s)
            for channel, data in self.liar.drips.items():
                channel.outbox += data[:1]
                del data[:1]

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        accepted.setblocking(False)
        self.accepted += 1
        channel = FakeChannel(self.liar.broker)
        self.liar.broker.channels.append(channel)
        connection = _Connection(accepted, channel)
        self._connections.append(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            connection.channel.inbox += data
        else:
            self._close(connection)

    def _send(self, connection: _Connection) -> None:
        channel = connection.channel
        try:
            if channel.outbox:
                sent = connection.socket.send(memoryview(channel.outbox)[: 1 << 20].tobytes())
                del channel.outbox[:sent]
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)
            return
        if channel.is_cut and not channel.outbox:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._selector.unregister(connection.socket)
            connection.socket.close()
            connection.channel.close()
            self.liar.drips.pop(connection.channel, None)

    def close(self) -> None:
        for connection in list(self._connections):
            self._close(connection)
        self._listener.close()
        self._selector.close()
