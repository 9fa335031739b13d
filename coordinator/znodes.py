"""Every znode: its path, and what is written in it.

The layout and the JSON are those of Kafka's ZooKeeper mode, so that Kafka's tools which read ZooKeeper
understand a Holdfast cluster. Decoders take whatever Kafka's own take (older versions, missing optional
fields, unknown fields) and raise `BadZnode` for the rest.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.placement import Assignment

NO_EPOCH = -1
NO_LEADER = -1


WRONG_SHAPE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a JSON value as what it is not raises."""


class BadZnode(Exception):
    """A znode's data is not what belongs there; the message names the path."""


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(path: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BadZnode(f"{path} does not hold JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadZnode(f"{path} does not hold a JSON object")
    return value


def _decode_int(path: str, data: bytes) -> int:
    try:
        return int(data)
    except ValueError:
        raise BadZnode(f"{path} does not hold a number: {data[:40]!r}") from None


# The parents of everything else, made at the start of a broker.

CONSUMERS = "/consumers"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
BROKER_SEQUENCE = "/brokers/seqid"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONTROLLER_BROKERS = "/controller_brokers"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
CLUSTER_ID = "/cluster/id"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
OWNED_TOPICS = "/holdfast/ownership/topics"
OWNED_NAMES = "/holdfast/ownership/names"
"""Not Kafka's: see `coordinator.ownership_records`."""
CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips")

PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    OWNED_TOPICS,
    OWNED_NAMES,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
)


def parents(path: str) -> list[str]:
    """The znodes above `path`, the highest first."""
    names = path.split("/")[1:-1]
    return ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]


# /brokers/ids/N: a live broker. Ephemeral; its czxid is the broker's epoch.


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker's listener is reached."""

    listener: str
    host: str
    port: int
    security_protocol: str


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """What a broker says of itself. `features` maps a feature to its lowest and highest version.

    `start_epoch` is the broker epoch under which this process registered first; -1: this is the first time.
    """

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    start_epoch: int = NO_EPOCH


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def encode_broker(info: BrokerInfo, timestamp_ms: int) -> bytes:
    """Version 5. `host` and `port` are for readers older than endpoints: those of a PLAINTEXT listener.

    `start_epoch` is not one of Kafka's fields; its readers pass over what they do not know.
    """
    plaintext = next(
        (endpoint for endpoint in info.endpoints if endpoint.security_protocol == "PLAINTEXT"), None
    )
    value: dict[str, Any] = {
        "version": 5,
        "features": {
            name: {"min_version": low, "max_version": high}
            for name, (low, high) in sorted(info.features.items())
        },
        "listener_security_protocol_map": {
            endpoint.listener: endpoint.security_protocol for endpoint in info.endpoints
        },
        "endpoints": [
            f"{endpoint.listener}://{_bracketed(endpoint.host)}:{endpoint.port}"
            for endpoint in info.endpoints
        ],
        "jmx_port": -1,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "timestamp": str(timestamp_ms),
    }
    if info.rack is not None:
        value["rack"] = info.rack
    if info.start_epoch != NO_EPOCH:
        value["start_epoch"] = info.start_epoch
    return _encode(value)


def decode_broker(broker_id: int, data: bytes) -> BrokerInfo:
    """Any version from 1 on."""
    path = broker_path(broker_id)
    value = _decode(path, data)
    try:
        return BrokerInfo(
            broker_id=broker_id,
            endpoints=_decode_endpoints(value),
            rack=value.get("rack"),
            features={
                name: (int(versions["min_version"]), int(versions["max_version"]))
                for name, versions in (value.get("features") or {}).items()
            },
            start_epoch=int(value.get("start_epoch", NO_EPOCH)),
        )
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not describe a broker: {error!r}") from None


def _decode_endpoints(value: Mapping[str, Any]) -> tuple[Endpoint, ...]:
    if int(value["version"]) == 1:
        return (Endpoint("PLAINTEXT", value["host"], int(value["port"]), "PLAINTEXT"),)
    protocols = value.get("listener_security_protocol_map") or {}
    endpoints = []
    for text in value["endpoints"]:
        listener, address = text.split("://", 1)
        host, port = address.rsplit(":", 1)
        protocol = protocols.get(listener, listener)
        endpoints.append(Endpoint(listener, host.strip("[]"), int(port), protocol))
    return tuple(endpoints)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# /brokers/topics/T: a topic's id, and which brokers keep its partitions.


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """A topic: its id (None in clusters that had none yet) and where each partition is kept."""

    topic_id: uuid.UUID | None
    partitions: Mapping[int, Assignment]


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def encode_topic(topic: TopicAssignment) -> bytes:
    """Version 3."""
    partitions = sorted(topic.partitions.items())
    value: dict[str, Any] = {
        "version": 3,
        "partitions": {str(number): list(assignment.replicas) for number, assignment in partitions},
        "adding_replicas": {
            str(number): list(assignment.adding) for number, assignment in partitions if assignment.adding
        },
        "removing_replicas": {
            str(number): list(assignment.removing) for number, assignment in partitions if assignment.removing
        },
    }
    if topic.topic_id is not None:
        value["topic_id"] = encode_uuid(topic.topic_id)
    return _encode(value)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    """Any version."""
    path = topic_path(topic)
    value = _decode(path, data)
    try:
        adding, removing = value.get("adding_replicas") or {}, value.get("removing_replicas") or {}
        return TopicAssignment(
            decode_uuid(value["topic_id"]) if value.get("topic_id") else None,
            {
                int(number): Assignment(
                    tuple(map(int, replicas)),
                    tuple(map(int, adding.get(number, ()))),
                    tuple(map(int, removing.get(number, ()))),
                )
                for number, replicas in value["partitions"].items()
            },
        )
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not describe a topic: {error!r}") from None


def encode_uuid(value: uuid.UUID) -> str:
    """Kafka writes an id as URL-safe base64 without padding: 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Raises ValueError where `text` is not 16 bytes in URL-safe base64."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except binascii.Error as error:
        raise ValueError(str(error)) from None


# /brokers/topics/T/partitions/P/state: who leads a partition.


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Leader, leader epoch and in-sync replicas; `controller_epoch` is that of the controller that wrote it.

    The znode's version, which is the partition epoch that leaders name in AlterPartition, is not in its data.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


def partitions_path(topic: str) -> str:
    return f"{topic_path(topic)}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{partitions_path(topic)}/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{partition_path(topic, partition)}/state"


def encode_partition_state(state: PartitionState) -> bytes:
    # Written out: a failover writes ten thousand of these before anybody has a leader again.
    isr = ",".join(map(str, state.isr))
    return (
        f'{{"version":1,"leader":{state.leader},"leader_epoch":{state.leader_epoch},"isr":[{isr}],'
        f'"controller_epoch":{state.controller_epoch}}}'
    ).encode()


def decode_partition_state(topic: str, partition: int, data: bytes) -> PartitionState:
    path = partition_state_path(topic, partition)
    value = _decode(path, data)
    try:
        return PartitionState(
            int(value["leader"]),
            int(value["leader_epoch"]),
            tuple(map(int, value["isr"])),
            int(value["controller_epoch"]),
        )
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not hold a partition's state: {error!r}") from None


# /controller and /controller_epoch: who decides.


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    value = {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    return _encode(value)


def decode_controller(data: bytes) -> int:
    """The controller's broker id."""
    try:
        return int(_decode(CONTROLLER, data)["brokerid"])
    except WRONG_SHAPE as error:
        raise BadZnode(f"{CONTROLLER} does not name a broker: {error!r}") from None


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    return _decode_int(CONTROLLER_EPOCH, data)


# /controller_brokers: which lives of brokers the controllers have dealt with. Not one of Kafka's znodes.


def encode_controller_brokers(epochs: Mapping[int, int]) -> bytes:
    """`epochs` has, by the id of each broker that was alive, the epoch under which its process registered
    first."""
    return _encode({"version": 1, "epochs": {str(broker): epoch for broker, epoch in sorted(epochs.items())}})


def decode_controller_brokers(data: bytes) -> dict[int, int]:
    value = _decode(CONTROLLER_BROKERS, data)
    try:
        return {int(broker): int(epoch) for broker, epoch in value["epochs"].items()}
    except WRONG_SHAPE as error:
        raise BadZnode(f"{CONTROLLER_BROKERS} does not list broker epochs: {error!r}") from None


# /cluster/id


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    value = _decode(CLUSTER_ID, data).get("id")
    if not isinstance(value, str):
        raise BadZnode(f"{CLUSTER_ID} holds no id")
    return value


# /config/…: what was changed while the cluster ran. Values are text; typing them is the reader's.


def config_path(kind: str, name: str) -> str:
    """`kind` is one of `CONFIG_TYPES`; `name` is as Kafka writes it (`<default>` for the default entity)."""
    return f"{CONFIG}/{kind}/{name}"


def encode_config(values: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(sorted(values.items()))})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Empty data counts as no values."""
    if not data:
        return {}
    values = _decode(path, data).get("config")
    if not isinstance(values, dict):
        raise BadZnode(f"{path} holds no config")
    return {str(key): str(value) for key, value in values.items()}


CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"


def encode_config_change(kind: str, name: str) -> bytes:
    """Says that `/config/<kind>/<name>` has changed."""
    return _encode({"version": 2, "entity_path": f"{kind}/{name}"})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """The kind and name of what has changed."""
    value = _decode(path, data)
    if value.get("version") == 1:
        kind, name = value.get("entity_type"), value.get("entity_name")
    else:
        kind, _, name = str(value.get("entity_path", "")).partition("/")
    if kind not in CONFIG_TYPES or not isinstance(name, str) or not name:
        raise BadZnode(f"{path} does not say what has changed")
    return kind, name


# /admin/…: what operators, or older tools, have asked for.


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


TopicPartition = tuple[str, int]


def encode_reassignment(replicas: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    return _encode(
        {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": partition, "replicas": list(target)}
                for (topic, partition), target in sorted(replicas.items())
            ],
        }
    )


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    value = _decode(REASSIGN_PARTITIONS, data)
    try:
        return {
            (str(entry["topic"]), int(entry["partition"])): tuple(map(int, entry["replicas"]))
            for entry in value["partitions"]
        }
    except WRONG_SHAPE as error:
        raise BadZnode(f"{REASSIGN_PARTITIONS} does not hold a reassignment: {error!r}") from None


def encode_preferred_election(partitions: Sequence[TopicPartition]) -> bytes:
    return _encode(
        {
            "version": 1,
            "partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions],
        }
    )


def decode_preferred_election(data: bytes) -> list[TopicPartition]:
    value = _decode(PREFERRED_REPLICA_ELECTION, data)
    try:
        return [(str(entry["topic"]), int(entry["partition"])) for entry in value["partitions"]]
    except WRONG_SHAPE as error:
        raise BadZnode(f"{PREFERRED_REPLICA_ELECTION} does not list partitions: {error!r}") from None


# /isr_change_notification and /log_dir_event_notification: what brokers tell the controller.

ISR_CHANGE_PREFIX = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"
_LOG_DIR_FAILED = 1


def encode_isr_change(partitions: Sequence[TopicPartition]) -> bytes:
    return encode_preferred_election(partitions)


def decode_isr_change(path: str, data: bytes) -> list[TopicPartition]:
    value = _decode(path, data)
    try:
        return [(str(entry["topic"]), int(entry["partition"])) for entry in value["partitions"]]
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not list partitions: {error!r}") from None


def encode_log_dir_event(broker_id: int) -> bytes:
    return _encode({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILED})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The broker that has lost a log directory."""
    try:
        return int(_decode(path, data)["broker"])
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not name a broker: {error!r}") from None


# /latest_producer_id_block: the numbers that a broker may give to producers.


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids `first` to `last`, both included, are `broker_id`'s to give."""

    broker_id: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """The bounds are text, as Kafka writes them."""
    return _encode(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    value = _decode(PRODUCER_ID_BLOCK, data)
    try:
        return ProducerIdBlock(int(value["broker"]), int(value["block_start"]), int(value["block_end"]))
    except WRONG_SHAPE as error:
        raise BadZnode(f"{PRODUCER_ID_BLOCK} does not hold a block: {error!r}") from None
