"""The limits of bandwidth that reassign-partitions.sh sets for moves and removes after them: the replication
throttle (KIP-73) between brokers, and the rate of copies between the directories of a broker (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdfast_log.clients.admin import Admin, ConfigChange, ConfigEntry, ConfigResource
from holdfast_log.protocol.configs import ConfigOperation, ConfigSource, ResourceType
from holdfast_log.protocol.topic_partition import TopicPartition

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_DYNAMIC = (ConfigSource.DYNAMIC_TOPIC, ConfigSource.DYNAMIC_BROKER)


def throttled_replicas(
    current: Mapping[TopicPartition, Sequence[int]], targets: Mapping[TopicPartition, Sequence[int]]
) -> dict[str, tuple[str, str]]:
    """For each topic, the values of its settings for throttled leader replicas and throttled followers."""
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
    """Limit the rate of the moves, in bytes per second, at each broker that leads or fetches."""
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


def set_directory_rate(admin: Admin, brokers: Iterable[int], bytes_per_s: int) -> None:
    """Limit what each of these brokers copies between its log directories, in bytes per second."""
    change = [ConfigChange(_DIRECTORY_RATE, str(bytes_per_s))]
    admin.alter_configs({_broker(broker): change for broker in sorted(set(brokers))})


def clear_directory_rate(admin: Admin, brokers: Iterable[int]) -> list[str]:
    """Remove the limit of what these brokers copy between their directories; return the brokers changed. One
    that is down keeps it."""
    live = {node.id for node in admin.describe_cluster().nodes}
    described = admin.describe_configs([_broker(node) for node in sorted(live & set(brokers))])
    limited = [
        broker
        for broker, entries in described.items()
        if any(entry.name == _DIRECTORY_RATE and entry.source in _DYNAMIC for entry in entries)
    ]
    change = [ConfigChange(_DIRECTORY_RATE, None, ConfigOperation.DELETE)]
    if limited:
        admin.alter_configs(dict.fromkeys(limited, change))
    return sorted(map(str, limited))


def clear_throttle(admin: Admin, topics: Iterable[str]) -> list[str]:
    """Remove the lists of these topics and the rates of all brokers; return the resources changed.

    Brokers are changed only if a topic has a list. Their rates are removed first, so that after a failure the
    lists remain and the call can be repeated. A listed broker that is down cannot be queried; its rate is
    removed as well.
    """
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    listed = {
        resource: _throttles(entries) for resource, entries in admin.describe_configs(resources).items()
    }
    listed = {resource: throttles for resource, throttles in listed.items() if throttles}
    if not listed:
        return []
    live = [node.id for node in admin.describe_cluster().nodes]
    absent = _brokers_of(listed.values()) - set(live)
    described = admin.describe_configs([_broker(node) for node in live])
    rates = {broker: [entry.name for entry in _throttles(entries)] for broker, entries in described.items()}
    rates |= {_broker(node): list(_RATES) for node in sorted(absent)}
    rates = {broker: names for broker, names in rates.items() if names}
    lists = {topic: [entry.name for entry in throttles] for topic, throttles in listed.items()}
    for throttles in (rates, lists):
        changes = {
            resource: [ConfigChange(name, None, ConfigOperation.DELETE) for name in names]
            for resource, names in throttles.items()
        }
        admin.alter_configs(changes, absent=absent)
    return sorted(str(resource) for resource in (*rates, *lists))


def _broker(node: int) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, str(node))


def _throttles(entries: Iterable[ConfigEntry]) -> list[ConfigEntry]:
    """The throttle settings that are set on a topic or a broker."""
    return [entry for entry in entries if entry.name in (*_RATES, *_REPLICAS) and entry.source in _DYNAMIC]


def _brokers_of(lists: Iterable[Iterable[ConfigEntry]]) -> set[int]:
    """The ids of the brokers in topics' lists of throttled replicas."""
    replicas = [each for entries in lists for entry in entries for each in (entry.value or "").split(",")]
    return {int(broker) for _, colon, broker in (each.partition(":") for each in replicas) if colon}
