"""Znodes, compared with the JSON that Kafka writes."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.coordinator.cluster.producer_ids import (
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.admin import (
    decode_preferred_election,
    decode_reassignment,
    encode_preferred_election,
    encode_reassignment,
)
from holdfast_log.coordinator.znodes.brokers import (
    PROTOCOL,
    BrokerInfo,
    RegisteredEndpoint,
    decode_broker,
    encode_broker,
)
from holdfast_log.coordinator.znodes.cluster import decode_cluster_id, encode_cluster_id
from holdfast_log.coordinator.znodes.configs import (
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)
from holdfast_log.coordinator.znodes.controller import (
    FeatureRecord,
    FinalizedFeatures,
    decode_controller,
    decode_controller_brokers,
    decode_controller_epoch,
    decode_recorded_features,
    encode_controller,
    encode_controller_brokers,
    encode_controller_epoch,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.znodes.log_dir_events import decode_log_dir_event
from holdfast_log.coordinator.znodes.topics import (
    NO_LEADER,
    PartitionState,
    TopicAssignment,
    decode_partition_state,
    decode_topic,
    encode_partition_state,
    encode_topic,
    partition_state_path,
)

TOPIC_ID = uuid.UUID("f97e9ab2-4b5c-4a7c-8d5d-3e2b1a0c9d8e")


def test_a_broker_is_encoded_as_kafka_3_registers_it() -> None:
    data = b"""{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","TLS":"SSL"},
        "endpoints":["PLAINTEXT://kafka-1:9092","TLS://[::1]:9093"],"jmx_port":9999,"port":9092,
        "host":"kafka-1","version":5,"timestamp":"1600000000000","rack":"a"}"""
    info = BrokerInfo(
        1,
        (
            RegisteredEndpoint("PLAINTEXT", "kafka-1", 9092, "PLAINTEXT"),
            RegisteredEndpoint("TLS", "::1", 9093, "SSL"),
        ),
        rack="a",
    )
    assert decode_broker(1, data) == info
    written = json.loads(encode_broker(info, 1600000000000))
    assert written == {**json.loads(data), "jmx_port": -1}


def test_a_broker_without_plaintext_has_no_host_and_port_for_old_readers() -> None:
    info = BrokerInfo(1, (RegisteredEndpoint("TLS", "h", 1, "SSL"),), features={"holdfast.own": (1, 2)})
    written = json.loads(encode_broker(info, 0))
    assert (written["host"], written["port"]) == (None, -1)
    assert written["features"] == {"holdfast.own": {"min_version": 1, "max_version": 2}}
    assert "rack" not in written


def test_a_broker_that_is_a_process_of_several_names_its_machine() -> None:
    info = BrokerInfo(1, (RegisteredEndpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),), machine="m")
    data = encode_broker(info, 0)
    assert decode_broker(1, data) == info
    assert json.loads(data)["machine"] == "m"


def test_a_broker_names_the_protocol_between_brokers_that_it_uses() -> None:
    endpoints = (RegisteredEndpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),)
    info = BrokerInfo(1, endpoints, features={PROTOCOL: (1, 3)}, protocol=2)
    data = encode_broker(info, 0)
    assert decode_broker(1, data) == info
    assert json.loads(data)["protocol"] == 2
    assert info.newest_protocol == 3
    # Those that name none are of a version that had none.
    earlier = BrokerInfo(1, endpoints)
    assert "protocol" not in json.loads(encode_broker(earlier, 0))
    assert (earlier.protocol, earlier.newest_protocol) == (1, 1)


def test_a_broker_that_registers_again_has_its_start_epoch() -> None:
    info = BrokerInfo(1, (RegisteredEndpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),), start_epoch=1 << 40)
    data = encode_broker(info, 0)
    assert decode_broker(1, data) == info
    # In a separate field, because Kafka's tools skip unknown fields.
    written = json.loads(data)
    assert written.pop("start_epoch") == 1 << 40
    assert json.loads(encode_broker(replace(info, start_epoch=-1), 0)) == written


def test_a_broker_that_lost_nothing_names_the_process_before_it() -> None:
    info = BrokerInfo(1, (RegisteredEndpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),), previous_start_epoch=7)
    data = encode_broker(info, 0)
    assert decode_broker(1, data) == info
    assert json.loads(data)["previous_start_epoch"] == 7
    info = replace(info, earlier_start_epochs=(5, 2))
    assert decode_broker(1, encode_broker(info, 0)) == info


@pytest.mark.parametrize(
    ("data", "endpoint"),
    [
        (
            b'{"version":1,"host":"h","port":9092,"jmx_port":-1}',
            RegisteredEndpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),
        ),
        (
            b'{"version":3,"host":null,"port":-1,"endpoints":["SSL://h:9093"],"rack":null}',
            RegisteredEndpoint("SSL", "h", 9093, "SSL"),
        ),
    ],
)
def test_brokers_of_older_versions_are_decoded(data: bytes, endpoint: RegisteredEndpoint) -> None:
    assert decode_broker(1, data).endpoints == (endpoint,)


def test_a_topic_is_encoded_as_kafka_3_writes_it() -> None:
    data = (
        b'{"partitions":{"0":[1,2,3],"1":[2,3]},"topic_id":"-X6askt' + b'cSnyNXT4rGgydjg",'
        b'"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}'
    )
    topic = TopicAssignment(
        TOPIC_ID, {0: ReplicaAssignment((1, 2, 3), adding=(3,), removing=(1,)), 1: ReplicaAssignment((2, 3))}
    )
    assert decode_topic("t", data) == topic
    assert json.loads(encode_topic(topic)) == json.loads(data)


def test_a_topic_without_an_id_is_decoded() -> None:
    data = b'{"version":1,"partitions":{"10":[1]}}'
    assert decode_topic("t", data) == TopicAssignment(None, {10: ReplicaAssignment((1,))})


def test_a_partition_state_has_kafkas_json() -> None:
    data = b'{"controller_epoch":4,"leader":1,"version":1,"leader_epoch":7,"isr":[1,2]}'
    state = PartitionState(leader=1, leader_epoch=7, isr=(1, 2), controller_epoch=4)
    assert decode_partition_state("t", 0, data) == state
    assert json.loads(encode_partition_state(state)) == json.loads(data)
    assert partition_state_path("t", 3) == "/brokers/topics/t/partitions/3/state"


def test_a_partition_state_with_eligible_replicas_and_without_a_leader() -> None:
    """Kafka's format has none of the last three fields: Holdfast adds them."""
    state = PartitionState(NO_LEADER, 7, (1,), 4, eligible=(2, 3), last_known_leader=1, unclean=(4,))
    data = encode_partition_state(state)
    assert json.loads(data) == {
        "version": 1,
        "leader": -1,
        "leader_epoch": 7,
        "isr": [1],
        "controller_epoch": 4,
        "eligible_leader_replicas": [2, 3],
        "last_known_leader": 1,
        "unclean_replicas": [4],
    }
    assert decode_partition_state("t", 0, data) == state


def test_the_controller_and_its_epoch_have_kafkas_json() -> None:
    assert decode_controller(b'{"version":1,"brokerid":3,"timestamp":"1600000000000"}') == 3
    assert json.loads(encode_controller(3, 16)) == {
        "version": 2,
        "brokerid": 3,
        "timestamp": "16",
        "kraftControllerEpoch": -1,
    }
    assert decode_controller_epoch(encode_controller_epoch(12)) == 12


def test_configs_and_their_change_notifications_have_kafkas_json() -> None:
    assert json.loads(encode_config({"b": "2", "a": "1"})) == {
        "version": 1,
        "config": {"a": "1", "b": "2"},
    }
    assert decode_config("/x", b'{"version":1,"config":{"a":"1"}}') == {"a": "1"}
    assert decode_config("/x", b"") == {}
    change = encode_config_change("topics", "t")
    assert json.loads(change) == {"version": 2, "entity_path": "topics/t"}
    assert decode_config_change("/x", change) == ("topics", "t")
    nested = b'{"version":2,"entity_path":"users/alice/clients/c"}'
    assert decode_config_change("/x", nested) == ("users", "alice/clients/c")
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert decode_config_change("/x", old) == ("topics", "t")


def test_reassignment_election_and_log_directory_requests_have_kafkas_json() -> None:
    reassignment = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3,1]}]}'
    assert decode_reassignment(reassignment) == {("t", 0): (3, 1)}
    assert json.loads(encode_reassignment({("t", 0): (3, 1)})) == json.loads(reassignment)
    election = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    assert decode_preferred_election(election) == [("t", 0)]
    assert json.loads(encode_preferred_election([("t", 0)])) == json.loads(election)
    assert decode_log_dir_event("/x", b'{"version":1,"broker":2,"event":1}') == 2


def test_the_cluster_id_and_producer_id_blocks_have_kafkas_json() -> None:
    assert decode_cluster_id(b'{"version":"1","id":"AbCdEfGhIjKlMnOpQrStUv"}') == "AbCdEfGhIjKlMnOpQrStUv"
    assert json.loads(encode_cluster_id("x")) == {"version": "1", "id": "x"}
    data = b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'
    assert decode_producer_id_block(data) == ProducerIdBlock(1, 1000, 1999)
    assert json.loads(encode_producer_id_block(ProducerIdBlock(1, 1000, 1999))) == json.loads(data)


def test_recorded_start_epochs_decode_as_encoded() -> None:
    data = encode_controller_brokers({2: 1 << 40, 1: 7})
    assert json.loads(data) == {"version": 1, "epochs": {"1": 7, "2": 1 << 40}}
    assert decode_controller_brokers(data) == {1: 7, 2: 1 << 40}
    assert decode_recorded_features(data) == FeatureRecord()


def test_recorded_features_decode_as_encoded() -> None:
    for features in (
        FeatureRecord(),
        FeatureRecord({1: 2, 3: 0}),
        FeatureRecord({1: 2, 3: 0}, FinalizedFeatures(0, 7)),
    ):
        data = encode_controller_brokers({2: 1 << 40, 1: 7}, features)
        assert decode_recorded_features(data) == features
        assert decode_controller_brokers(data) == {1: 7, 2: 1 << 40}
    assert json.loads(data) == {
        "version": 1,
        "epochs": {"1": 7, "2": 1 << 40},
        "transaction_versions": {"1": 2, "3": 0},
        "features": {"transaction.version": 0},
        "features_epoch": 7,
    }


DECODERS = [
    lambda data: decode_broker(1, data),
    lambda data: decode_topic("t", data),
    lambda data: decode_partition_state("t", 0, data),
    decode_controller,
    decode_controller_epoch,
    decode_cluster_id,
    lambda data: decode_config("/x", data),
    lambda data: decode_config_change("/x", data),
    decode_reassignment,
    decode_preferred_election,
    lambda data: decode_log_dir_event("/x", data),
    decode_producer_id_block,
    decode_controller_brokers,
    decode_recorded_features,
]
NAMES = """version brokerid host port endpoints features partitions topic_id leader isr adding_replicas
    leader_epoch controller_epoch config entity_path id broker 0 listener_security_protocol_map min_version
    block_start block_end epochs topic partition replicas transaction_versions transaction.version
    features_epoch"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES.split()), inner, max_size=5)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("number", ["Infinity", "NaN", "1e999"])
def test_a_malformed_number_is_refused(number: str) -> None:
    data = f'{{"leader":{number},"leader_epoch":0,"isr":[1],"controller_epoch":0}}'.encode()
    with pytest.raises(BadZnode):
        decode_partition_state("t", 0, data)


@given(data=JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20))
def test_malformed_znodes_are_refused_with_their_path(data: bytes) -> None:
    for decode in DECODERS:
        try:
            decode(data)
        except BadZnode as error:
            assert str(error).startswith("/")
