"""GetReplicaLogInfo: where this broker's logs end, as the controller learns it (KIP-966)."""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.handlers.get_replica_log_info import GetReplicaLogInfoHandler
from holdfast_log.broker.log.truncation import advance_log_start
from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.orders.strays import Strays
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.get_replica_log_info import (
    REPLICA_LOG_INFO_MAX,
    AskedReplicas,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    ReplicaLogInfo,
)
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tests.broker.world import World, only_produced, produce_request
from tests.models.batches import batch
from tests.models.orders import leader_and_isr, update_metadata

BROKER_EPOCH = 50


class Asked:
    """A broker that the controller asks. It carries out a LeaderAndIsr once `prepared` has fired."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.prepared: Deferred[None] = succeed(None)
        self.orders = ControllerOrders(
            self.world.metadata,
            self.world.replicas,
            self.world.roles,
            cast(DynamicConfigs, None),
            lambda request: self.prepared,
            SimpleNamespace(broker_epoch=BROKER_EPOCH),
            cast(Strays, SimpleNamespace(before_roles=lambda request: None)),
            self.world.right,
            lambda broker_epoch: None,
        )
        self.orders.begin()
        self.world.dispatcher.add([GetReplicaLogInfoHandler(self.orders)])
        self.client = self.world.client()

    def append(self, topic: str, records: int) -> None:
        """Append this many batches of one record."""
        for _ in range(records):
            produced = self.client.call(produce_request(topic, batch(b"x"), acks=1))
            assert only_produced(produced).error_code == ErrorCode.NONE

    def ask(self, topic_id: uuid.UUID, *partitions: int) -> GetReplicaLogInfoResponse:
        asked = [AskedReplicas(topic_id=topic_id, partitions=list(partitions))]
        return self.client.call(GetReplicaLogInfoRequest(topic_partitions=asked))

    def row(self, topic: str, partition: int = 0) -> ReplicaLogInfo:
        response = self.ask(self.world.topic_id(topic), partition)
        assert (response.broker_epoch, response.truncated) == (BROKER_EPOCH, False)
        ((row,),) = [topic.partition_log_info for topic in response.topic_partition_log_info_list]
        return row


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def test_the_end_has_the_leader_epoch_of_the_last_batch(asked: Asked) -> None:
    """A leader epoch without batches says nothing about the log."""
    asked.world.assign("t", leader_epoch=3)
    assert asked.row("t") == ReplicaLogInfo(
        partition=0, last_written_leader_epoch=-1, current_leader_epoch=3, log_end_offset=0, error_code=0
    )
    asked.append("t", 2)
    asked.world.assign("t", leader_epoch=5)
    assert asked.row("t") == ReplicaLogInfo(
        partition=0, last_written_leader_epoch=3, current_leader_epoch=5, log_end_offset=2, error_code=0
    )


def test_a_log_whose_batches_were_all_deleted_keeps_the_latest_epoch(asked: Asked) -> None:
    asked.world.assign("t", leader_epoch=3)
    asked.append("t", 2)
    advance_log_start(asked.world.replicas.partition("t", 0).log, 2)
    row = asked.row("t")
    assert (row.last_written_leader_epoch, row.log_end_offset) == (3, 2)


def test_a_replica_that_is_not_here_or_on_a_failed_disk_has_no_end(asked: Asked) -> None:
    asked.world.assign("t")
    assert asked.row("t", 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asked.row("other").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (directory,) = asked.world.logs.directories
    asked.world.logs.fail_directory(directory, OSError("the disk is gone"))
    row = asked.row("t")
    assert (row.error_code, row.log_end_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_the_answer_waits_for_earlier_orders(asked: Asked) -> None:
    asked.world.assign("t")
    asked.prepared = Deferred()
    request: LeaderAndIsrRequest = leader_and_isr("t", asked.world.topic_id("t"), broker_epoch=BROKER_EPOCH)
    asked.orders.leader_and_isr(request)
    question = [AskedReplicas(topic_id=asked.world.topic_id("t"), partitions=[0])]
    asked.client.ask(GetReplicaLogInfoRequest(topic_partitions=question))
    assert asked.client.answers() == []
    asked.prepared.callback(None)
    assert len(asked.client.answers()) == 1


def test_an_answer_describes_a_limited_number_of_partitions(asked: Asked) -> None:
    response = asked.ask(asked.world.topic_id("t"), *range(REPLICA_LOG_INFO_MAX + 1))
    assert response.truncated
    assert len(response.topic_partition_log_info_list[0].partition_log_info) == REPLICA_LOG_INFO_MAX


def test_clients_are_not_offered_this_request(asked: Asked) -> None:
    asked.world.metadata.update(update_metadata())
    offered = asked.client.call(ApiVersionsRequest(client_software_name="c", client_software_version="1"))
    assert GetReplicaLogInfoRequest.api.key not in [row.api_key for row in offered.api_keys]
