"""Owners on plain sockets: each call sends one request and waits for its response."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast_log.protocol.messages.ownership import (
    Access,
    HeldResource,
    RenewRequest,
    ResourceStanding,
)
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from holdfast_log.protocol.messages.producer_access import (
    ProducerAccessMode,
    ProducerAccessRequest,
    ProducerAccessResponse,
)
from tests.integration.raw_socket import RawSocket
from tests.models.batches import batch
from tests.models.ownership_requests import OwnershipRequests

SESSION_MS = 300_000
TIMEOUT_MS = 60_000
_LATEST = -1


class Owner(OwnershipRequests):
    """An owner with one connection to a broker."""

    session_timeout_ms = SESSION_MS
    timeout_ms = TIMEOUT_MS

    def __init__(self, port: int, owner_id: str, group: str = "app", access: Access = Access.WRITE) -> None:
        super().__init__(owner_id, group, access)
        self.port = port
        self.socket = RawSocket(port)

    def reconnect(self, port: int | None = None) -> None:
        """Open another connection. The earlier one stays open."""
        self.port = self.port if port is None else port
        self.socket = RawSocket(self.port)

    def wait_for_coordinator(self) -> None:
        """Wait until this broker, the only one of its cluster, coordinates the owner's group."""
        self.socket.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]))
        resources = [HeldResource(name="any", incarnation=1)]
        ask = RenewRequest(group=self.group, owner_id=self.owner_id, max_wait_ms=0, resources=resources)
        while True:
            response = self.socket.call(ask)
            if response.resources[0].error_code == ErrorCode.OWNERSHIP_FENCED:
                return

    def claim(
        self,
        topic: str,
        generation: int = 1,
        partition: int = 0,
        session_ms: int = SESSION_MS,
        **fields: Any,
    ) -> ResourceStanding:
        request = self.claim_request(topic, generation, partition, session_timeout_ms=session_ms, **fields)
        response = self.socket.call(request)
        assert response.error_code == 0, response
        (standing,) = response.resources
        self.take(standing)
        return standing

    def resume(self, topic: str, partition: int = 0) -> ResourceStanding:
        (standing,) = self.socket.call(self.resume_request(topic, partition)).resources
        return standing

    def renew(self, topic: str, partition: int = 0, max_wait_ms: int = 0) -> ResourceStanding:
        (standing,) = self.socket.call(self.renew_request(topic, partition, max_wait_ms)).resources
        return standing

    def release(self, topic: str, partition: int = 0) -> ResourceStanding:
        (standing,) = self.socket.call(self.release_request(topic, partition)).resources
        return standing

    def access_to(
        self, topic: str, mode: ProducerAccessMode, partition: int = 0, epoch: int = -1, wait_ms: int = 0
    ) -> ProducerAccessResponse:
        self.group = ""
        response = self.socket.call(
            ProducerAccessRequest(
                topic=topic,
                partition=partition,
                producer_id=self.owner_id,
                mode=mode,
                epoch=epoch,
                session_timeout_ms=SESSION_MS,
                timeout_ms=TIMEOUT_MS,
                wait_timeout_ms=wait_ms,
                secret=self.secret,
            )
        )
        if response.error_code == 0:
            self.generation, self.incarnation = response.epoch, response.incarnation
        return response

    def write(self, topic: str, value: bytes = b"x", partition: int = 0, **options: Any) -> int:
        """Append a record. Returns the error code."""
        return self.produce(topic, value, partition, **options).error_code

    def produce(
        self, topic: str, value: bytes = b"x", partition: int = 0, acks: int = -1, **condition: int
    ) -> PartitionProduceResponse:
        response = self.socket.call(produce_request(topic, value, partition, acks, **condition))
        (answer,) = response.responses[0].partition_responses
        return answer


def produce_request(
    topic: str, value: bytes = b"x", partition: int = 0, acks: int = -1, **condition: int
) -> ProduceRequest:
    records = batch(value, timestamp=int(time.time() * 1000))
    data = PartitionProduceData(index=partition, records=records, **condition)
    return ProduceRequest(
        acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def leader_of(broker: BackgroundBroker, topic: str) -> int:
    """The leader of a topic's partition 0 by a broker's metadata; -1 if there is none."""
    with RawSocket(broker.port) as connection:
        response = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    return next((each.leader_id for each in response.topics[0].partitions if each.partition_index == 0), -1)


def wait_for_leader(brokers: Sequence[BackgroundBroker], topic: str, other_than: int = -1) -> int:
    """Wait until all of `brokers` know one leader of a topic's partition 0, and it serves requests. Returns
    its id."""
    while True:
        leaders = {leader_of(broker, topic) for broker in brokers}
        if len(leaders) == 1 and not leaders & {other_than, -1}:
            break
        time.sleep(0.05)
    (found,) = leaders
    (broker,) = [broker for broker in brokers if broker.broker_id == found]
    while not _leads(broker, topic):
        time.sleep(0.05)
    return found


def _leads(broker: BackgroundBroker, topic: str) -> bool:
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=_LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    with RawSocket(broker.port) as client:
        response = client.call(request)
    return response.topics[0].partitions[0].error_code == ErrorCode.NONE
