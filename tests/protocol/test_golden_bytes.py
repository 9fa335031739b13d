"""Bytes written by hand from Kafka's schemas, for the versions that test_against_kio.py has no partner for.

Each case is the whole message, spelled field by field.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast_log.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from holdfast_log.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast_log.protocol.messages.get_replica_log_info import (
    AskedReplicas,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    ReplicaLogInfo,
    TopicReplicaLogInfo,
)
from holdfast_log.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from holdfast_log.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from holdfast_log.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from holdfast_log.protocol.messages.yield_leadership import (
    YieldedPartition,
    YieldedTopic,
    YieldLeadershipRequest,
    YieldLeadershipResponse,
)
from holdfast_log.protocol.schema import ProtocolMessage, UnsupportedField, decode, encode

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def hexed(text: str) -> bytes:
    """Bytes from hexadecimal digits; what follows a # is a comment."""
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in text.splitlines()))


PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=1000,
    topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=b"old!")])],
)
PRODUCE_BYTES = """
    ffff              # acks
    000003e8          # timeout
    00000001 0001 74  # one topic, t
    00000001 00000002 # one partition, 2
    00000004 6f6c6421 # message set
"""


def produced(**fields: int) -> list[TopicProduceResponse]:
    partition = PartitionProduceResponse(index=2, error_code=43, base_offset=-1, **fields)
    return [TopicProduceResponse(name="t", partition_responses=[partition])]


PRODUCED_BYTES = """
    00000001 0001 74                 # one topic, t
    00000001 00000002                # one partition, 2
    002b                             # error
    ffffffffffffffff                 # base offset
"""


SECRET = bytes(range(16))
FENCED_PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=1000,
    topic_data=[
        TopicProduceData(
            name="t",
            partition_data=[
                PartitionProduceData(index=2, records=b"new!", owner_token=258, owner_secret=SECRET)
            ],
        )
    ],
)
FENCED_PRODUCE_BYTES = """
    00 ffff 000003e8  # no transactional id, acks, timeout
    02 02 74          # one topic, t
    02 00000002       # one partition, 2
    05 6e657721       # records
    02                # two tagged fields
    964e 08 0000000000000102                          # 10006: the owner's token
    974e 11 11 000102030405060708090a0b0c0d0e0f       # 10007: the secret
    00 00             # no tagged fields of the topic and of the request
"""
FENCED_FETCH = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    topics=[
        FetchTopic(
            topic="t",
            partitions=[
                FetchPartition(
                    partition=2,
                    fetch_offset=5,
                    partition_max_bytes=100,
                    owner_token=258,
                    owner_secret=SECRET,
                )
            ],
        )
    ],
    forgotten_topics_data=[],
)
FENCED_FETCH_BYTES = """
    ffffffff 000001f4 00000001 7fffffff 00            # replica id, limits, isolation level
    00000000 ffffffff                                 # no session
    02 02 74                                          # one topic, t
    02 00000002 ffffffff 0000000000000005 ffffffff    # one partition, leader epoch, offset, last epoch
    ffffffffffffffff 00000064                         # log start offset, maximum of bytes
    02                                                # two tagged fields
    904e 08 0000000000000102                          # 10000: the owner's token
    914e 11 11 000102030405060708090a0b0c0d0e0f       # 10001: the secret
    00 01 01 00       # no tagged fields of the topic, nothing forgotten, no rack, no tagged fields
"""


def leader_and_isr(**fields: int) -> LeaderAndIsrRequest:
    recovery = {"leader_recovery_state": fields.pop("leader_recovery_state", 0)}
    partition = LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=7, leader=1, leader_epoch=5, isr=[1, 2], partition_epoch=9,
        replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[], is_new=True, **recovery,
    )  # fmt: skip
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=7,
        broker_epoch=258,
        type=1,
        topic_states=[
            LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[partition])
        ],
        live_leaders=[LeaderAndIsrLiveLeader(broker_id=1, host_name="h", port=9092)],
        **fields,
    )


LEADER_AND_ISR_HEAD = "00000007 0000000000000102 01  # controller epoch, broker epoch, type\n"
LEADER_AND_ISR_PARTITION = """
    02 02 74                         # one topic, t
    00112233445566778899aabbccddeeff # topic id
    02                               # one partition:
    00000000 00000007 00000001 00000005
    03 00000001 00000002             # isr
    00000009                         # partition epoch
    04 00000001 00000002 00000003    # replicas
    02 00000003                      # adding
    01                               # removing
    01                               # is new
"""
LEADER_AND_ISR_TAIL = """
    00 00                            # no tagged fields: partition, topic
    02 00000001 02 68 00002384 00    # one live leader
    00
"""

LEADER_AND_ISR_RESPONSE = LeaderAndIsrResponse(
    error_code=0,
    topics=[
        LeaderAndIsrTopicError(
            topic_id=TOPIC_ID,
            partition_errors=[LeaderAndIsrPartitionError(partition_index=4, error_code=56)],
        )
    ],
)
LEADER_AND_ISR_RESPONSE_BYTES = """
    0000
    02 00112233445566778899aabbccddeeff
    02 00000004 0038 00
    00
    00
"""


def update_metadata(**fields: int) -> UpdateMetadataRequest:
    partition = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=7, leader=-2, leader_epoch=5, isr=[], zk_version=9,
        replicas=[1], offline_replicas=[1],
    )  # fmt: skip
    endpoint = UpdateMetadataEndpoint(port=9092, host="h", listener="L", security_protocol=1)
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=7,
        broker_epoch=258,
        topic_states=[
            UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[partition])
        ],
        live_brokers=[UpdateMetadataBroker(id=1, endpoints=[endpoint], rack=None)],
        **fields,
    )


UPDATE_METADATA_BODY = """
    00000007 0000000000000102        # controller epoch, broker epoch
    02 02 74                         # one topic, t
    00112233445566778899aabbccddeeff # topic id
    02                               # one partition:
    00000000 00000007 fffffffe 00000005
    01                               # isr
    00000009                         # version of the znode
    02 00000001                      # replicas
    02 00000001                      # offline
    00 00                            # no tagged fields: partition, topic
    02 00000001                      # one broker, 1
    02 00002384 02 68 02 4c 0001 00  # one endpoint
    00                               # no rack
    00                               # no tagged fields: broker
"""


def stop_replica(**fields: int) -> StopReplicaRequest:
    partition = StopReplicaPartitionState(partition_index=3, leader_epoch=-2, delete_partition=True)
    return StopReplicaRequest(
        controller_id=1,
        controller_epoch=7,
        broker_epoch=258,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[partition])],
        **fields,
    )


STOP_REPLICA_BODY = """
    00000007 0000000000000102        # controller epoch, broker epoch
    02 02 74                         # one topic, t
    02 00000003 fffffffe 01 00       # one partition
    00 00
"""
STOP_REPLICA_RESPONSE = StopReplicaResponse(
    error_code=0,
    partition_errors=[StopReplicaPartitionError(topic_name="t", partition_index=3, error_code=56)],
)
STOP_REPLICA_RESPONSE_BYTES = "0000 02 02 74 00000003 0038 00 00"

REPLICA_LOG_INFO_RESPONSE = GetReplicaLogInfoResponse(
    broker_epoch=258,
    topic_partition_log_info_list=[
        TopicReplicaLogInfo(
            topic_id=TOPIC_ID,
            partition_log_info=[
                ReplicaLogInfo(
                    partition=3,
                    last_written_leader_epoch=5,
                    current_leader_epoch=7,
                    log_end_offset=99,
                    error_code=0,
                )
            ],
        )
    ],
)
REPLICA_LOG_INFO_RESPONSE_BYTES = """
    00000000 0000000000000102 00     # throttle time, broker epoch, not truncated
    02 00112233445566778899aabbccddeeff
    02 00000003 00000005 00000007 0000000000000063 0000
    00 00 00
"""

CASES: list[tuple[int, ProtocolMessage, str]] = [
    (0, PRODUCE, PRODUCE_BYTES),
    (1, PRODUCE, PRODUCE_BYTES),
    (2, PRODUCE, PRODUCE_BYTES),
    (9, FENCED_PRODUCE, FENCED_PRODUCE_BYTES),
    (11, FENCED_PRODUCE, FENCED_PRODUCE_BYTES),
    (12, FENCED_FETCH, FENCED_FETCH_BYTES),
    (0, ProduceResponse(responses=produced()), PRODUCED_BYTES),
    (1, ProduceResponse(responses=produced(), throttle_time_ms=5), PRODUCED_BYTES + "00000005"),
    (
        2,
        ProduceResponse(responses=produced(log_append_time_ms=255), throttle_time_ms=5),
        PRODUCED_BYTES + "00000000000000ff 00000005",
    ),
    (
        0,
        DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[1, 2])]),
        "00000001 0001 74 00000002 00000001 00000002",
    ),
    (0, DescribeLogDirsRequest(topics=None), "ffffffff"),
    (
        0,
        DescribeLogDirsResponse(
            throttle_time_ms=5,
            results=[
                DescribeLogDirsResult(
                    error_code=0,
                    log_dir="d",
                    topics=[
                        DescribeLogDirsTopic(
                            name="t",
                            partitions=[
                                DescribeLogDirsPartition(
                                    partition_index=1, partition_size=255, offset_lag=3, is_future_key=True
                                )
                            ],
                        )
                    ],
                )
            ],
        ),
        """
        00000005                         # throttle time
        00000001 0000 0001 64            # one directory, d
        00000001 0001 74                 # one topic, t
        00000001                         # one partition:
        00000001 00000000000000ff 0000000000000003 01
        """,
    ),
    (5, leader_and_isr(), "00000001" + LEADER_AND_ISR_HEAD + LEADER_AND_ISR_PARTITION + LEADER_AND_ISR_TAIL),
    (
        6,
        leader_and_isr(leader_recovery_state=1),
        "00000001" + LEADER_AND_ISR_HEAD + LEADER_AND_ISR_PARTITION + "01" + LEADER_AND_ISR_TAIL,
    ),
    (
        7,
        leader_and_isr(is_kraft_controller=True),
        "00000001 01" + LEADER_AND_ISR_HEAD + LEADER_AND_ISR_PARTITION + "00" + LEADER_AND_ISR_TAIL,
    ),
    (5, LEADER_AND_ISR_RESPONSE, LEADER_AND_ISR_RESPONSE_BYTES),
    (6, LEADER_AND_ISR_RESPONSE, LEADER_AND_ISR_RESPONSE_BYTES),
    (7, LEADER_AND_ISR_RESPONSE, LEADER_AND_ISR_RESPONSE_BYTES),
    (7, update_metadata(), "00000001" + UPDATE_METADATA_BODY + "00"),
    (8, update_metadata(is_kraft_controller=True), "00000001 01" + UPDATE_METADATA_BODY + "00"),
    (8, update_metadata(type=2), "00000001 00" + UPDATE_METADATA_BODY + "01 00 01 02"),
    (7, UpdateMetadataResponse(error_code=77), "004d 00"),
    (8, UpdateMetadataResponse(error_code=77), "004d 00"),
    (3, stop_replica(), "00000001" + STOP_REPLICA_BODY),
    (4, stop_replica(is_kraft_controller=True), "00000001 01" + STOP_REPLICA_BODY),
    (3, STOP_REPLICA_RESPONSE, STOP_REPLICA_RESPONSE_BYTES),
    (4, STOP_REPLICA_RESPONSE, STOP_REPLICA_RESPONSE_BYTES),
    (3, ControlledShutdownRequest(broker_id=1, broker_epoch=258), "00000001 0000000000000102 00"),
    (
        3,
        ControlledShutdownResponse(
            error_code=0, remaining_partitions=[RemainingPartition(topic_name="t", partition_index=1)]
        ),
        "0000 02 02 74 00000001 00 00",
    ),
    (
        0,
        GetReplicaLogInfoRequest(
            topic_partitions=[AskedReplicas(topic_id=TOPIC_ID, partitions=[3])],
        ),
        "02 00112233445566778899aabbccddeeff 02 00000003 00 00",
    ),
    (0, GetReplicaLogInfoRequest(topic_partitions=None), "00 00"),
    (0, REPLICA_LOG_INFO_RESPONSE, REPLICA_LOG_INFO_RESPONSE_BYTES),
    (
        0,
        YieldLeadershipRequest(
            controller_id=1,
            controller_epoch=2,
            broker_epoch=258,
            number=7,
            topics=[
                YieldedTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        YieldedPartition(partition=3, leader_epoch=5),
                        YieldedPartition(partition=4, leader_epoch=6, is_yielded=False),
                    ],
                )
            ],
        ),
        """
        00000001 00000002                    # controller, its epoch
        0000000000000102 0000000000000007    # broker epoch, number of the request
        02 00112233445566778899aabbccddeeff  # one topic
        03                                   # two partitions
        00000003 00000005 01 00              # yielded
        00000004 00000006 00 00              # may confirm again
        00 00                                # no tagged fields of the topic and of the request
        """,
    ),
    (0, YieldLeadershipResponse(error_code=77), "004d 00"),
]


@pytest.mark.parametrize(
    ("version", "message", "expected"),
    CASES,
    ids=[f"{type(message).__name__}-v{version}" for version, message, _ in CASES],
)
def test_bytes_are_those_written_by_hand(version: int, message: ProtocolMessage, expected: str) -> None:
    assert encode(message, version) == hexed(expected)
    assert decode(type(message), version, hexed(expected)) == message


@pytest.mark.parametrize(("version", "message"), [(8, FENCED_PRODUCE), (11, FENCED_FETCH)])
def test_a_version_without_tagged_fields_cannot_carry_a_fence(version: int, message: ProtocolMessage) -> None:
    with pytest.raises(UnsupportedField):
        encode(message, version)
