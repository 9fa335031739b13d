"""A shard with a clock, a log and its waiting requests, for scenarios about groups.

It performs results in order: answers are seen only after their records are in the log.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import NAMESPACE_DNS, UUID, uuid5

from holdfast_log.coordinator.groups.classic_group import ClassicCaller
from holdfast_log.coordinator.groups.classic_join import Join
from holdfast_log.coordinator.groups.classic_rebalance import Sync
from holdfast_log.coordinator.groups.consumer_protocol import encode_assignment, encode_subscription
from holdfast_log.coordinator.groups.effects import (
    ErrorAnswer,
    JoinAnswer,
    ManagedHeartbeatAnswer,
    OffsetsAnswer,
    PartitionErrorsAnswer,
    ReaderClaim,
    RegisterAnswer,
    RewindAnswer,
    SyncAnswer,
)
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.shard import GroupShard, OffsetToCommit
from holdfast_log.coordinator.shards.effects import RecordsRefused
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.shard_host import ShardHost

A = TypeVar("A")
SESSION_MS = 10_000
REBALANCE_MS = 60_000
SUBSCRIPTION = encode_subscription(["orders"])
CONFIG = GroupSettings()


@dataclass(frozen=True)
class Member:
    """A classic member, as known to its client."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    protocols: tuple[tuple[str, bytes], ...] = (("range", SUBSCRIPTION),)

    def named(self) -> dict[str, Any]:
        """The fields of a request that name the member."""
        return {
            "member_id": self.member_id,
            "generation": self.generation,
            "instance_id": self.instance_id,
        }

    def after(self, answer: JoinAnswer) -> Member:
        return replace(self, member_id=answer.member_id, generation=answer.generation)


class GroupWorld(ShardHost):
    """One shard, its records, and its answers so far."""

    def __init__(self, config: GroupSettings = CONFIG, **topics: int) -> None:
        self.config = config
        self.topics = topics
        self.incarnations: dict[str, int] = {}
        """How often a topic has been created; 1 if it is not named."""
        self.now_ms = 1_000_000
        self.claims: list[ReaderClaim] = []
        self.answers: dict[int, Any] = {}
        self._ids = itertools.count(1)
        self._requests = itertools.count(1)
        super().__init__()

    # The environment of a shard

    def time_ms(self) -> int:
        return self.now_ms

    def claim(self, claims: Sequence[ReaderClaim]) -> None:
        self.claims += claims

    def reply(self, request: int, answer: Any) -> None:
        assert request not in self.answers, "one request, two answers"
        self.answers[request] = answer

    def wait(self, ms: int) -> None:
        """Let time pass, and handle the deadlines that are due."""
        end_ms = self.now_ms + ms
        while (next_ms := self.shard.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.perform(self.shard.tick(self.now_ms))
        self.now_ms = end_ms

    def new_request(self) -> int:
        return next(self._requests)

    def answer(self, request: int, kind: type[A]) -> A:
        """The answer to `request`, which must have been sent."""
        answer = self.answers[request]
        assert isinstance(answer, kind), answer
        return answer

    def is_waiting(self, request: int) -> bool:
        return request not in self.answers

    def new_shard(self) -> GroupShard:
        return GroupShard(
            self.config,
            new_id=lambda: str(next(self._ids)),
            partition_count=self.partition_count,
            cluster=self,
        )

    # The topics of the cluster

    def partition_count(self, topic: str) -> int:
        return self.topics.get(topic, 0)

    def topic_id(self, name: str) -> UUID:
        if name not in self.topics:
            return UUID(int=0)
        return uuid5(NAMESPACE_DNS, f"{name} {self.incarnations.get(name, 1)}")

    def topic_names(self) -> list[str]:
        return list(self.topics)

    # Kafka's requests

    def send_join(
        self,
        member: Member,
        group: str = "g",
        *,
        client_id: str = "c",
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        asks_member_id: bool = True,
        can_skip_assignment: bool = True,
    ) -> int:
        request = self.new_request()
        join = Join(
            request,
            member.member_id,
            member.instance_id,
            client_id,
            "/127.0.0.1",
            session_timeout_ms,
            rebalance_timeout_ms,
            protocol_type,
            member.protocols,
            asks_member_id,
            can_skip_assignment,
        )
        self.perform(self.shard.classic.join(group, join, self.now_ms))
        return request

    def join_answer(self, request: int) -> JoinAnswer:
        return self.answer(request, JoinAnswer)

    def send_first_join(self, member: Member | None = None, group: str = "g", **how: Any) -> int:
        """Join without a member id, as old clients do, and wait for the answer."""
        return self.send_join(member or Member(), group, asks_member_id=False, **how)

    def join_empty(self, member: Member | None = None, group: str = "g", **how: Any) -> JoinAnswer:
        """Join an empty group as an old client does, and wait out the delay."""
        request = self.send_first_join(member, group, **how)
        self.wait(self.config.initial_rebalance_delay_ms)
        return self.join_answer(request)

    def send_sync(
        self,
        member: Member,
        assignments: dict[str, bytes] | None = None,
        group: str = "g",
        protocol_name: str | None = None,
        protocol_type: str | None = None,
    ) -> int:
        request = self.new_request()
        sync = Sync(request, ClassicCaller(**member.named()), protocol_type, protocol_name, assignments or {})
        self.perform(self.shard.classic.sync(group, sync, self.now_ms))
        return request

    def sync_answer(self, request: int) -> SyncAnswer:
        return self.answer(request, SyncAnswer)

    def heartbeat(self, member: Member, group: str = "g") -> ErrorCode:
        request = self.new_request()
        caller = ClassicCaller(**member.named())
        self.perform(self.shard.classic.heartbeat(request, group, caller, self.now_ms))
        return self.answer(request, ErrorAnswer).error

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> list[ErrorCode]:
        request = self.new_request()
        self.perform(self.shard.leave(request, group, members, self.now_ms))
        answer = self.answers[request]
        if isinstance(answer, RecordsRefused):
            return [answer.error] * len(members)
        return [member.error for member in answer.members]

    def stable_group(self, count: int, group: str = "g", **how: Any) -> list[Member]:
        """`count` members in a stable group; the first leads, and the i-th has partition i of "orders"."""
        requests = [self.send_first_join(group=group, **how) for _ in range(count)]
        self.wait(max(self.config.initial_rebalance_delay_ms, 0) * (count + 1))
        members = [Member().after(self.join_answer(request)) for request in requests]
        self.assign(members, group)
        return members

    def assign(self, members: Sequence[Member], group: str = "g") -> None:
        """All members sync, the first as the leader."""
        shares = {
            member.member_id: encode_assignment([TopicPartition("orders", number)])
            for number, member in enumerate(members)
        }
        syncs = [self.send_sync(member, None, group) for member in members[1:]]
        syncs.append(self.send_sync(members[0], shares, group))
        assert all(self.sync_answer(sync).error == ErrorCode.NONE for sync in syncs)

    def describe(self, group: str = "g") -> Any:
        request = self.new_request()
        self.perform(self.shard.describe_group(request, group))
        return self.answers[request]

    # Offsets

    def commit(
        self,
        offset: int,
        member: Member | None = None,
        group: str = "g",
        *,
        topic: str = "orders",
        partition: int = 0,
        metadata: str = "",
        retention_ms: int | None = None,
    ) -> ErrorCode:
        """Commit one offset, as `member` or as a caller that is not a member."""
        member = member or Member()
        request = self.new_request()
        result = self.shard.commit_offsets(
            request,
            group,
            [OffsetToCommit(TopicPartition(topic, partition), offset, metadata=metadata)],
            **member.named(),
            retention_ms=retention_ms,
            now_ms=self.now_ms,
        )
        self.perform(result)
        answer = self.answers[request]
        if not isinstance(answer, PartitionErrorsAnswer):
            error: ErrorCode = answer.error
            return error
        return answer.partitions[0][1]

    def committed(self, group: str = "g") -> dict[TopicPartition, int]:
        """All offsets of the group."""
        request = self.new_request()
        self.perform(self.shard.fetch_offsets(request, group, None))
        return {o.partition: o.offset for o in self.answer(request, OffsetsAnswer).offsets}

    # The client rewrite's requests

    def create_group(self, group: str = "g", **how: Any) -> ErrorCode:
        request = self.new_request()
        how = {"session_timeout_ms": SESSION_MS, "topics": ["orders"], **how}
        self.perform(self.shard.managed.create_group(request, group, now_ms=self.now_ms, **how))
        return self.answer(request, ErrorAnswer).error

    def send_register(self, consumer_id: str, group: str = "g") -> int:
        request = self.new_request()
        result = self.shard.managed.register_consumer(
            request,
            group,
            consumer_id=consumer_id,
            client_id="c",
            client_host="/127.0.0.1",
            now_ms=self.now_ms,
        )
        self.perform(result)
        return request

    def register_answer(self, request: int) -> RegisterAnswer:
        return self.answer(request, RegisterAnswer)

    def owned(self, request: int) -> dict[tuple[str, int], int]:
        """PartitionsToOwn of the answer to a registration: the offset by partition."""
        answer = self.register_answer(request)
        assert answer.error == ErrorCode.NONE
        return {(*owned.partition,): owned.offset for owned in answer.partitions_to_own}

    def consumer_heartbeat(
        self, consumer_id: str, generation: int, group: str = "g", session_timeout_ms: int = -1
    ) -> ManagedHeartbeatAnswer:
        request = self.new_request()
        result = self.shard.managed.heartbeat(
            request,
            group,
            consumer_id=consumer_id,
            generation=generation,
            session_timeout_ms=session_timeout_ms,
            now_ms=self.now_ms,
        )
        self.perform(result)
        return self.answer(request, ManagedHeartbeatAnswer)

    def send_rewind(
        self,
        new_offsets: dict[tuple[str, int], int],
        consumer_id: str = "",
        generation: int = -1,
        group: str = "g",
    ) -> int:
        request = self.new_request()
        result = self.shard.managed.rewind_consumer(
            request,
            group,
            [(TopicPartition(*partition), offset) for partition, offset in new_offsets.items()],
            consumer_id=consumer_id,
            generation=generation,
            now_ms=self.now_ms,
        )
        self.perform(result)
        return request

    def rewound(self, request: int) -> dict[TopicPartition, tuple[int, ErrorCode]]:
        answer = self.answer(request, RewindAnswer)
        return {r.partition: (r.offset, r.error) for r in answer.actual_offsets}

    def registered_group(self, *consumer_ids: str, **how: Any) -> int:
        """A managed group in which these consumers own their partitions; returns the generation."""
        assert self.create_group(**how) == ErrorCode.NONE
        requests = {consumer_ids[0]: self.send_register(consumer_ids[0])}
        for newcomer in consumer_ids[1:]:
            others = list(requests)
            requests = {newcomer: self.send_register(newcomer)}
            requests.update((other, self.send_register(other)) for other in others)
        return self.register_answer(requests[consumer_ids[0]]).generation
