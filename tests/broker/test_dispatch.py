"""The dispatcher passes valid requests to handlers, and closes connections that exceed a limit."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.requests.dispatch import INTERNAL_ELEMENTS_FACTOR, Dispatcher
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from holdfast_log.protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tests.models.wires import FakeWire

ELEMENTS_MAX = 4


class Clients(Handler[MetadataRequest, MetadataResponse]):
    request = MetadataRequest

    def handle(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(brokers=[], controller_id=1, topics=[])


class Brokers(Handler[StopReplicaRequest, StopReplicaResponse]):
    request = StopReplicaRequest

    def handle(self, context: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
        return StopReplicaResponse(error_code=0, partition_errors=[])


@pytest.fixture
def connection() -> ServerConnection:
    dispatcher = Dispatcher(RepeatedLog(Clock()), ELEMENTS_MAX)
    dispatcher.add([Clients(), Brokers()])
    wire = FakeWire()
    limits = ConnectionLimits(1 << 20, 1 << 20, 100)
    opened = ServerConnection(1, "PLAINTEXT", wire.peer, dispatcher.dispatch, limits, Clock())
    opened.connected(wire)
    return opened


def send(connection: ServerConnection, request: Request[Any]) -> None:
    frame = join_parts(encode_request(request, request.api.max_version, 1, "test"))[4:]
    connection.frames_received([memoryview(bytearray(frame))])


def metadata_of(topics: int) -> MetadataRequest:
    topic = MetadataRequestTopic(topic_id=uuid.UUID(int=0), name="t")
    return MetadataRequest(topics=[topic] * topics)


def stop_of(topics: int) -> StopReplicaRequest:
    topic = StopReplicaTopicState(topic_name="t", partition_states=[])
    return StopReplicaRequest(
        controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic] * topics
    )


def test_a_client_request_with_too_many_elements_closes_the_connection(connection: ServerConnection) -> None:
    send(connection, metadata_of(ELEMENTS_MAX))
    assert not connection.is_closed
    send(connection, metadata_of(ELEMENTS_MAX + 1))
    assert connection.close_reason is not None
    assert "its request has too many elements" in connection.close_reason
    assert f"socket.request.max.elements={ELEMENTS_MAX}" in connection.close_reason


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "it sent bytes that are not a valid request"),
        (b"\x00\x12\x00", "it sent bytes that are not a valid request"),
        (b"\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff", "it sent a request of API 999"),
        (b"\x00\x03\x00\x63\x00\x00\x00\x01\xff\xff", "it sent version 99 of Metadata"),
        (b"\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xff", "MetadataRequest.topics: a length"),
        (b"\x00\x03\x00\x01\x00\x00\x00\x01\x7f\xffabc", "a client id of 32767 bytes"),
    ],
)
def test_a_frame_without_a_valid_request_closes_the_connection_and_the_log_says_why(
    connection: ServerConnection, frame: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection.frames_received([memoryview(bytearray(frame))])
    assert connection.is_closed
    (record,) = caplog.records
    assert reason in record.message


def test_a_controller_request_may_have_more_elements(connection: ServerConnection) -> None:
    send(connection, stop_of(ELEMENTS_MAX * INTERNAL_ELEMENTS_FACTOR))
    assert not connection.is_closed
    send(connection, stop_of(ELEMENTS_MAX * INTERNAL_ELEMENTS_FACTOR + 1))
    assert connection.is_closed
