"""Plans replicas so that each listed broker holds about the same number. Pure: no I/O.

A replica moves only if its broker holds too many or is not in the list. If brokers have racks, the replicas
of a partition are spread over as many racks as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_log.protocol.topic_partition import TopicPartition


class NotEnoughBrokers(ValueError):
    """A partition has more replicas than brokers are listed; the message gives both numbers."""


def plan(
    current: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None]
) -> dict[TopicPartition, tuple[int, ...]]:
    """The planned replicas of each partition, preferred leader first.

    `racks` maps each broker to use to its rack. Raises `NotEnoughBrokers`.
    """
    for partition, replicas in current.items():
        if len(replicas) > len(racks):
            raise NotEnoughBrokers(
                f"{partition} has {len(replicas)} replicas, and {len(racks)} brokers are listed"
            )
    kept_max = -(-sum(map(len, current.values())) // len(racks)) if racks else 0
    led_max = -(-len(current) // len(racks)) if racks else 0
    kept = dict.fromkeys(sorted(racks), 0)
    led = dict.fromkeys(sorted(racks), 0)
    placed: dict[TopicPartition, list[int]] = {}
    for partition, replicas in sorted(current.items()):
        placed[partition] = [broker for broker in replicas if broker in kept and kept[broker] < kept_max]
        for broker in placed[partition]:
            kept[broker] += 1
    planned = {}
    for partition, replicas in placed.items():
        while len(replicas) < len(current[partition]):
            used = [racks[broker] for broker in replicas if racks[broker] is not None]
            candidates = [broker for broker in kept if broker not in replicas]
            chosen = min(candidates, key=lambda broker: (racks[broker] in used, kept[broker], broker))
            replicas.append(chosen)
            kept[chosen] += 1
        leader = next((broker for broker in replicas if led[broker] < led_max), None)
        if leader is None:
            leader = min(replicas, key=lambda broker: led[broker])
        led[leader] += 1
        planned[partition] = (leader, *(broker for broker in replicas if broker != leader))
    return planned
