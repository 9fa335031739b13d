"""Where everything stands: the path of every znode. What is written in them is for `…_znodes` to say.

The layout and the JSON are those of Kafka's ZooKeeper mode, so that Kafka's tools which read ZooKeeper
understand a Holdfast cluster.
"""

from __future__ import annotations

NO_EPOCH = -1
NO_LEADER = -1

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
"""Not Kafka's: see `coordinator.ownership.records`."""
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
"""The parents of everything else, made at the start of a broker."""

CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"


def parents(path: str) -> list[str]:
    """The znodes above `path`, the highest first."""
    names = path.split("/")[1:-1]
    return ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{topic_path(topic)}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{partitions_path(topic)}/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{partition_path(topic, partition)}/state"


def config_path(kind: str, name: str) -> str:
    """`kind` is one of `CONFIG_TYPES`; `name` is as Kafka writes it (`<default>` for the default entity)."""
    return f"{CONFIG}/{kind}/{name}"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"
