"""The throttle that reassign-partitions.sh puts on moves, and takes away when they are over (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from clients.admin import Admin, ConfigChange, ConfigEntry, ConfigResource
from clients.message import TopicPartition
from protocol.configs import ConfigOperation, ConfigSource, ResourceType

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_DYNAMIC = (ConfigSource.DYNAMIC_TOPIC, ConfigSource.DYNAMIC_BROKER)


def throttled_replicas(
    current: Mapping[TopicPartition, Sequence[int]], targets: Mapping[TopicPartition, Sequence[int]]
) -> dict[str, tuple[str, str]]:
    """By topic the replicas that give and those that fetch, as the topic's settings list them."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, number), target in sorted(targets.items()):
        there = current.get(TopicPartition(topic, number), ())
        coming = [broker for broker in target if broker not in there]
        if coming:
            leaders, followers = found.setdefault(topic, ([], []))
            leaders += [f"{number}:{broker}" for broker in there]
            followers += [f"{number}:{broker}" for broker in coming]
    return {topic: (",".join(leaders), ",".join(followers)) for topic, (leaders, followers) in found.items()}


def set_throttle(
    admin: Admin,
    current: Mapping[TopicPartition, Sequence[int]],
    targets: Mapping[TopicPartition, Sequence[int]],
    bytes_per_s: int,
) -> None:
    """Hold the moves to a rate, at each broker that gives or fetches."""
    live = {node.id for node in admin.describe_cluster().nodes}
    involved = {broker for replicas in (*current.values(), *targets.values()) for broker in replicas}
    changes: dict[ConfigResource, list[ConfigChange]] = {
        ConfigResource(ResourceType.TOPIC, topic): [
            ConfigChange(name, replicas) for name, replicas in zip(_REPLICAS, lists, strict=True)
        ]
        for topic, lists in throttled_replicas(current, targets).items()
    }
    for broker in sorted(live & involved):
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        changes[resource] = [ConfigChange(name, str(bytes_per_s)) for name in _RATES]
    admin.alter_configs(changes)


def clear_throttle(admin: Admin, topics: Iterable[str]) -> list[str]:
    """Take the lists from these topics and the rates from all brokers; from whom there was anything to take.

    Brokers are asked only where a topic has a list, and their rates go first: what fails can be done again.
    """
    lists = _removals(admin, [ConfigResource(ResourceType.TOPIC, topic) for topic in topics])
    if not lists:
        return []
    nodes = admin.describe_cluster().nodes
    rates = _removals(admin, [ConfigResource(ResourceType.BROKER, str(node.id)) for node in nodes])
    admin.alter_configs(rates)
    admin.alter_configs(lists)
    return sorted(str(resource) for resource in (*rates, *lists))


def _removals(admin: Admin, resources: Iterable[ConfigResource]) -> dict[ConfigResource, list[ConfigChange]]:
    """The changes that take away what these have of throttles."""
    changes = {}
    for resource, entries in admin.describe_configs(resources).items():
        names = [entry.name for entry in entries if _is_throttle(entry)]
        if names:
            changes[resource] = [ConfigChange(name, None, ConfigOperation.DELETE) for name in names]
    return changes


def _is_throttle(entry: ConfigEntry) -> bool:
    return entry.name in (*_RATES, *_REPLICAS) and entry.source in _DYNAMIC
