"""Several consumers of one fake cluster, polled in turn, with a check that no two own a partition."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.feedback.events import Event
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

TURN_MS = 20


class Member(RebalanceListener):
    """A consumer that records its records and its rebalance events."""

    def __init__(self, cluster: FakeCluster, name: str, properties: dict[str, Any]) -> None:
        self.name = name
        self.owner_name: str = properties.get("group.instance.id", name)
        """The owner's name, which is the same for a static member that restarts within a generation."""
        self.records: list[ConsumerRecord] = []
        self.told: list[tuple[str, tuple[int, ...]]] = []
        self.events: list[Event] = []
        self.on_revoked: Callable[[Member], object] = lambda member: None
        deserializer = properties.pop("deserializer", None)
        given = {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": name,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 3_000,
            "heartbeat.interval.ms": 500,
            "auto.commit.interval.ms": 1_000,
            **properties,
        }
        self.consumer = Consumer(
            given,
            network=cluster.network(),
            rng=random.Random(name),
            value_deserializer=deserializer,
            rebalance_listener=self,
            on_event=self.events.append,
        )

    def on_partitions_assigned(self, partitions: Any) -> None:
        self.told.append(("assigned", numbers(partitions)))

    def on_partitions_revoked(self, partitions: Any) -> None:
        self.told.append(("revoked", numbers(partitions)))
        self.on_revoked(self)

    def on_partitions_lost(self, partitions: Any) -> None:
        self.told.append(("lost", numbers(partitions)))

    @property
    def owned(self) -> tuple[int, ...]:
        return numbers(self.consumer.assignment())

    @property
    def generation(self) -> int:
        return self.consumer.group_identity().generation

    def poll(self, timeout_ms: int = TURN_MS) -> list[ConsumerRecord]:
        records = self.consumer.poll(timeout_ms)
        self.records += records
        return records


def numbers(partitions: Any) -> tuple[int, ...]:
    return tuple(sorted(partition.partition for partition in partitions))


class Party:
    """Members, and the owner of each partition in each generation; two owners are an error."""

    def __init__(self, cluster: FakeCluster, *, turn_ms: int = TURN_MS, **properties: Any) -> None:
        self.cluster = cluster
        self.turn_ms = turn_ms
        self.members: list[Member] = []
        self._properties = {name.replace("_", "."): value for name, value in properties.items()}
        self._owners: dict[tuple[int, TopicPartition], str] = {}

    def join(self, name: str, *topics: str, **properties: Any) -> Member:
        """Add a member that subscribes to `topics`, by default `flights`."""
        more = {key.replace("_", "."): value for key, value in properties.items()}
        member = Member(self.cluster, name, self._properties | more)
        for topic in topics or ("flights",):
            member.consumer.add_topic(topic)
        self.members.append(member)
        return member

    def settled(self, *names: str, run_ms: int = 0, **properties: Any) -> list[Member]:
        """Members that join together, once the party has settled and `run_ms` have passed."""
        members = [self.join(name, **properties) for name in names]
        self.settle()
        self.run(run_ms)
        return members

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.consumer.close()

    def crash(self, member: Member) -> None:
        """Remove a member without closing it, as if it had crashed."""
        self.members.remove(member)

    def turn(self) -> None:
        for member in list(self.members):
            generation = member.generation
            records = member.poll(self.turn_ms)
            # During that call, the member may have joined or lost its membership.
            generation = max(generation, member.generation)
            for record in records:
                self._check(member, generation, TopicPartition(record.topic, record.partition))

    def _check(self, member: Member, generation: int, partition: TopicPartition) -> None:
        owner = self._owners.setdefault((generation, partition), member.owner_name)
        assert owner == member.owner_name, f"{partition} in generation {generation}: {owner}, {member.name}"

    def run(self, ms: int) -> None:
        """Poll the members in turn until the clock has advanced by `ms`."""
        until_ms = self.cluster.time_ms + ms
        while self.cluster.time_ms < until_ms:
            before_ms = self.cluster.time_ms
            self.turn()
            if self.cluster.time_ms == before_ms:
                self.cluster.time_ms += 1  # Processing takes time too.

    def settle(self, ms: int = 60_000) -> None:
        """Poll until the members own all partitions and none is joining."""
        until_ms = self.cluster.time_ms + ms
        calm = 0
        while calm < 5:
            self.turn()
            self.cluster.time_ms += 1
            assert self.cluster.time_ms < until_ms, [(m.name, m.owned, m.generation) for m in self.members]
            calm = calm + 1 if self._is_settled() else 0

    def _is_settled(self) -> bool:
        if self.cluster.groups.state("g") != "Stable":
            return False
        owned = [partition for member in self.members for partition in member.consumer.assignment()]
        topics = {topic for topic, _ in owned}
        count = sum(len(self.cluster.topics[topic]) for topic in topics)
        generations = {member.generation for member in self.members if member.owned}
        return len(owned) == len(set(owned)) == count and len(generations) <= 1
