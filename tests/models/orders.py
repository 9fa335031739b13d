"""What a controller sends to brokers, with the fields that a test cares for."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast_log.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from holdfast_log.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC_ID = uuid.UUID(int=1)
_BROKER_1_LEADS: Mapping[str, Any] = {"controller_epoch": 1, "leader": 1, "leader_epoch": 0}
"""Fields of a partition's state, unless a test sets others."""
_BY_BROKER_1: Mapping[str, Any] = {"controller_id": 1, "controller_epoch": 1}
"""Fields of a request, unless a test sets others."""


def broker_metadata(number: int, listener: str = "PLAINTEXT") -> UpdateMetadataBroker:
    """A broker whose port is 9000 plus its number."""
    endpoint = UpdateMetadataEndpoint(
        port=9000 + number, host="127.0.0.1", listener=listener, security_protocol=0
    )
    return UpdateMetadataBroker(id=number, endpoints=[endpoint], rack=None)


def partition_metadata(
    index: int = 0,
    *,
    replicas: Sequence[int] = (1, 2),
    isr: Sequence[int] = (1,),
    offline: Sequence[int] = (),
    partition_epoch: int = 0,
    **numbers: int,
) -> UpdateMetadataPartitionState:
    """A partition's metadata. `numbers` are its other fields: leader, leader epoch, controller epoch."""
    return UpdateMetadataPartitionState(
        **{**_BROKER_1_LEADS, **numbers},
        partition_index=index,
        isr=list(isr),
        zk_version=partition_epoch,
        replicas=list(replicas),
        offline_replicas=list(offline),
    )


def update_metadata(
    topic: str = "t",
    topic_id: uuid.UUID = TOPIC_ID,
    states: Sequence[UpdateMetadataPartitionState] = (),
    live: Sequence[UpdateMetadataBroker] = (),
    **fields: Any,
) -> UpdateMetadataRequest:
    """The metadata of some partitions of one topic, and of the live brokers."""
    topics = [UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=list(states))]
    return UpdateMetadataRequest(
        **{**_BY_BROKER_1, **fields},
        topic_states=topics if states else [],
        live_brokers=list(live),
    )


def partition_role(
    index: int = 0,
    *,
    replicas: Sequence[int] = (1,),
    isr: Sequence[int] = (1,),
    eligible: Sequence[int] = (),
    **numbers: int,
) -> LeaderAndIsrPartitionState:
    """The role of a partition that is new to its replicas. `numbers` are its other fields: leader, and the
    epochs of leader, controller and partition."""
    return LeaderAndIsrPartitionState(
        **{**_BROKER_1_LEADS, "partition_epoch": 0, **numbers},
        partition_index=index,
        isr=list(isr),
        replicas=list(replicas),
        adding_replicas=[],
        removing_replicas=[],
        is_new=True,
        eligible_leader_replicas=list(eligible),
    )


def leader_and_isr(
    topic: str = "t",
    topic_id: uuid.UUID = TOPIC_ID,
    states: Sequence[LeaderAndIsrPartitionState] = (),
    **fields: Any,
) -> LeaderAndIsrRequest:
    """The roles of some partitions of one topic."""
    topics = [LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=list(states))]
    return LeaderAndIsrRequest(
        **{**_BY_BROKER_1, "type": 0, **fields},
        topic_states=topics,
        live_leaders=[],
    )
