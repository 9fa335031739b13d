"""Broker 2, played by a test: broker 1 has a channel to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.outbound import BrokerChannel, ChannelSettings
from holdfast_log.protocol.api import Response
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import decode_request_header, encode_response
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from tests.models.wires import Attempt, FakeNetwork


class PlayedBroker:
    """The channel of broker 1 to broker 2, which the test plays. `begins` are what the channel calls to begin
    its handshakes."""

    def __init__(self, settings: ChannelSettings, *begins: Callable[[], Any] | None) -> None:
        self.clock = Clock()
        self.network = FakeNetwork()
        self.outcomes: list[Any] = []
        address = Address("broker2", 9092)
        self.channel = BrokerChannel(address, self.network, self.clock, lambda: 0.0, settings, *begins)

    def send(self) -> None:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        self.channel.send(request).addBoth(self.outcomes.append)

    @property
    def attempt(self) -> Attempt:
        return self.network.attempts[-1]

    def connect(self) -> None:
        self.attempt.receiver.connected(self.attempt.wire)

    def sent(self) -> list[int]:
        """The APIs of the requests since the last call."""
        return [decode_request_header(frame)[0].api_key for frame in self.attempt.wire.frames()]

    def receive(self, response: Response, version: int, id_: int) -> None:
        data = join_parts(encode_response(response, version, id_))
        self.attempt.receiver.frames_received([memoryview(bytearray(data))[SIZE.size :]])
