"""AlterPartition: a leader proposes a new ISR (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.produce import FIRST_OWN_TAG
from holdfast_log.protocol.schema import Int8, Int16, Int32, Int64, struct, wire


@struct
class AlteredPartition:
    """The current state, whether or not the change was made.

    `eligible_leader_replicas`, Holdfast's own field, means the same as in LeaderAndIsr.
    """

    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32
    eligible_leader_replicas: list[Int32] = wire(tag=FIRST_OWN_TAG, ignorable=True)


@struct
class AlteredTopic:
    topic_id: UUID
    partitions: list[AlteredPartition]


@struct
class AlterPartitionResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    topics: list[AlteredTopic]


@struct
class BrokerState:
    """A replica for the ISR, with the epoch of its registration; -1 skips that check (KIP-903)."""

    broker_id: Int32
    broker_epoch: Int64 = -1


@struct
class ProposedPartition:
    """The ISR that the leader proposes, and the `partition_epoch` of the state that it changes."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = wire("2")
    new_isr_with_epochs: list[BrokerState] = wire("3+")
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


@struct
class TopicData:
    topic_id: UUID
    partitions: list[ProposedPartition]


@request(key=56, versions="2-3", flexible="0+", internal=True)
class AlterPartitionRequest(Request[AlterPartitionResponse]):
    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[TopicData]
