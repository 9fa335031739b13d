"""Kills of coordinators at a pace by the clock: which one, and what came of them. Pure.

A broker can be spared if every partition keeps `min.insync.replicas` replicas in sync without it. One that
was killed counts in no in-sync set until its next process has registered and is in all of them again: before,
the set may still name the process that is dead.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_log.coordinator.shards.partitions import partition_of_key
from holdfast_log.coordinator.znodes.topics import NO_LEADER, PartitionState
from holdfast_log.protocol.topic_partition import TopicPartition

STATE_TOPIC = "__transaction_state"


@dataclass(frozen=True, slots=True)
class Sight:
    """What ZooKeeper says at one moment: the registration of each broker that is alive, and the states of the
    partitions, by which brokers are chosen."""

    registrations: Mapping[int, int]
    states: Mapping[TopicPartition, PartitionState]

    def in_all_sets(self, broker: int) -> bool:
        return all(broker in state.isr for state in self.states.values())


@dataclass(slots=True)
class _Away:
    """A broker that was killed, and is not in all in-sync sets again."""

    since_s: float
    registration: int | None


@dataclass(slots=True)
class KillPlan:
    """When to kill the next coordinator, and which. Times are in seconds of one clock.

    It is due every `every_s` by the clock: a kill that had to wait does not put the next one off.
    """

    every_s: float
    ids: Sequence[str]
    """The transactional ids whose coordinators are killed."""
    in_sync_min: int
    next_s: float
    killed_s: list[float] = field(default_factory=list)
    away_s: list[float] = field(default_factory=list)
    """For each broker that was in sync again: how long it was not."""
    _away: dict[int, _Away] = field(default_factory=dict)

    def look(self, now_s: float, sight: Sight) -> int | None:
        """Note who is in sync again. Returns the broker to kill now, if it is time and one can be spared: of
        these the one that coordinates most of the ids."""
        for broker, away in list(self._away.items()):
            registration = sight.registrations.get(broker)
            if registration not in (None, away.registration) and sight.in_all_sets(broker):
                self.away_s.append(now_s - away.since_s)
                del self._away[broker]
        if now_s < self.next_s:
            return None
        spared = [broker for broker in self.coordinated(sight) if self._can_be_spared(broker, sight)]
        return spared[0] if spared else None

    def coordinated(self, sight: Sight) -> Mapping[int, int]:
        """How many of the ids each living broker coordinates, most first."""
        count = sum(place.topic == STATE_TOPIC for place in sight.states)
        found: Counter[int] = Counter()
        for name in self.ids if count else ():
            state = sight.states[TopicPartition(STATE_TOPIC, partition_of_key(name, count))]
            if state.leader != NO_LEADER and state.leader not in self._dead(sight):
                found[state.leader] += 1
        return dict(found.most_common())

    def note_kill(self, now_s: float, broker: int, sight: Sight) -> None:
        self._away[broker] = _Away(now_s, sight.registrations.get(broker))
        self.killed_s.append(now_s)
        while self.next_s <= now_s:
            self.next_s += self.every_s

    def _dead(self, sight: Sight) -> Collection[int]:
        """The brokers of which only the process that was killed is registered, or none."""
        return [
            broker
            for broker, away in self._away.items()
            if sight.registrations.get(broker) in (None, away.registration)
        ]

    def _can_be_spared(self, broker: int, sight: Sight) -> bool:
        return all(
            len(set(state.isr) - self._away.keys() - {broker}) >= self.in_sync_min
            for state in sight.states.values()
        )

    def account(self) -> str:
        """How many kills there were, how far apart, and how long the brokers were out of sync."""
        text = f"{len(self.killed_s)} coordinators killed"
        between = [after - before for before, after in zip(self.killed_s, self.killed_s[1:], strict=False)]
        if between:
            text += f", one every {statistics.median(between):.1f} s (median; {max(between):.1f} s at most)"
        if self.away_s:
            text += f", in sync again after {statistics.median(self.away_s):.1f} s ({max(self.away_s):.1f} s)"
        return text
