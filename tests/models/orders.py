"""What a controller sends to brokers, with the fields that a test cares for."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC_ID = uuid.UUID(int=1)


def broker_metadata(
    number: int, host: str = "127.0.0.1", listener: str = "PLAINTEXT"
) -> UpdateMetadataBroker:
    """A broker whose port is 9000 plus its number."""
    endpoint = UpdateMetadataEndpoint(
        port=9000 + number, host="127.0.0.1", listener=listener, security_protocol=0
    )
    return UpdateMetadataBroker(id=number, endpoints=[endpoint], rack=None)


def partition_metadata(
    index: int = 0,
    *,
    leader: int = 1,
    leader_epoch: int = 0,
    isr: Sequence[int] = (1,),
    replicas: Sequence[int] = (1, 2),
    partition_epoch: int = 0,
    controller_epoch: int = 1,
    offline: Sequence[int] = (),
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
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
        **{"controller_id": 1, "controller_epoch": 1, **fields},
        topic_states=topics if states else [],
        live_brokers=list(live),
    )


def partition_role(
    index: int = 0,
    *,
    leader: int = 1,
    leader_epoch: int = 0,
    isr: Sequence[int] = (1,),
    replicas: Sequence[int] = (1,),
    partition_epoch: int = 0,
    controller_epoch: int = 1,
    eligible: Sequence[int] = (),
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        partition_epoch=partition_epoch,
        replicas=list(replicas),
        adding_replicas=[],
        removing_replicas=[],
        is_new=True,
        eligible_leader_replicas=list(eligible),
    )


def leader_and_isr(
    topic: str, topic_id: uuid.UUID, states: Sequence[LeaderAndIsrPartitionState] = (), **fields: Any
) -> LeaderAndIsrRequest:
    """The roles of some partitions of one topic."""
    told = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=list(states))
    return LeaderAndIsrRequest(
        **{"controller_id": 1, "controller_epoch": 1, "type": 0, **fields},
        topic_states=[told],
        live_leaders=[],
    )
