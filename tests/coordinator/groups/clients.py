"""Correct members of both protocols, driven step by step against a failing environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from holdfast_log.coordinator.groups.assignors import assign_round_robin
from holdfast_log.coordinator.groups.consumer_protocol import encode_assignment
from holdfast_log.coordinator.groups.effects import JoinAnswer, RegisterAnswer, SyncAnswer
from holdfast_log.protocol.consumer_protocol import decode_assignment
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.groups.world import GroupWorld, Member


class OwnershipChecker:
    """Checks that no partition is assigned to two members in one generation."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}

    def assigned(self, group: str, generation: int, member_id: str, partition: TopicPartition) -> None:
        owner = self._owners.setdefault((group, generation, partition), member_id)
        assert owner == member_id, f"{partition} in generation {generation} of {group}: {owner}, {member_id}"


class Client(ABC):
    """A member that sends one request after the other."""

    def __init__(self, world: GroupWorld, checker: OwnershipChecker) -> None:
        self._world = world
        self._checker = checker
        self._waiting_for: int | None = None
        self.owned: tuple[TopicPartition, ...] | None = None

    def crash(self) -> None:
        """Restart: forget all state; the answer to a waiting request is lost."""
        self._waiting_for = None
        self.owned = None

    def disconnect(self) -> None:
        """Lose the connection: a waiting request gets no answer."""
        self._waiting_for = None

    def step(self) -> None:
        """Take the next step, if there is one."""
        if self._waiting_for is None:
            self._ask()
        elif not self._world.is_waiting(self._waiting_for):
            answer = self._world.answers[self._waiting_for]
            self._waiting_for = None
            self._take(answer)

    @abstractmethod
    def _ask(self) -> None: ...

    @abstractmethod
    def _take(self, answer: object) -> None: ...


class ClassicClient(Client):
    """A consumer of group "classic"; a static member if it has an `instance_id`."""

    group = "classic"

    def __init__(self, world: GroupWorld, checker: OwnershipChecker, instance_id: str | None = None) -> None:
        super().__init__(world, checker)
        self.member = Member(instance_id=instance_id)

    def crash(self) -> None:
        super().crash()
        self.member = Member(instance_id=self.member.instance_id)

    def _ask(self) -> None:
        if self.owned is not None:
            self._obey(self._world.heartbeat(self.member, self.group))
        else:
            self._waiting_for = self._world.send_join(self.member, self.group)

    def _take(self, answer: object) -> None:
        match answer:
            case JoinAnswer(error=ErrorCode.NONE):
                self.member = self.member.after(answer)
                self._waiting_for = self._world.send_sync(self.member, self._shares(answer), self.group)
            case JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED):
                self.member = replace(self.member, member_id=answer.member_id)
            case SyncAnswer(error=ErrorCode.NONE):
                self.owned = tuple(TopicPartition(*each) for each in decode_assignment(answer.assignment))
                for partition in self.owned:
                    self._checker.assigned(self.group, self.member.generation, self._identity(), partition)
            case JoinAnswer() | SyncAnswer():
                self._obey(answer.error)

    def _shares(self, answer: JoinAnswer) -> dict[str, bytes] | None:
        if answer.leader_id != answer.member_id or answer.skip_assignment:
            return None
        members = [member.member_id for member in answer.members]
        shares = assign_round_robin(members, {"orders": self._world.topics["orders"]}, {})
        return {member: encode_assignment(share) for member, share in shares.items()}

    def _obey(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            return
        self.owned = None
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member = Member(instance_id=self.member.instance_id)

    def _identity(self) -> str:
        """The owner's name: a static member that restarts within a generation is the same owner."""
        return self.member.instance_id or self.member.member_id


class ManagedClient(Client):
    """A consumer of group "managed"."""

    group = "managed"

    def __init__(self, world: GroupWorld, checker: OwnershipChecker, consumer_id: str) -> None:
        super().__init__(world, checker)
        self._consumer_id = consumer_id
        self.generation = -1

    @property
    def member(self) -> Member:
        return Member(self._consumer_id, self.generation)

    def crash(self) -> None:
        super().crash()
        self.generation = -1

    def _ask(self) -> None:
        if self.owned is not None:
            answer = self._world.consumer_heartbeat(self._consumer_id, self.generation, self.group)
            if answer.error is ErrorCode.NONE:
                self.generation = answer.controller_generation
            else:
                self.owned = None
        else:
            self._waiting_for = self._world.send_register(self._consumer_id, self.group)

    def _take(self, answer: object) -> None:
        if isinstance(answer, RegisterAnswer) and answer.error is ErrorCode.NONE:
            self.generation = answer.generation
            self.owned = tuple(owned.partition for owned in answer.partitions_to_own)
            for partition in self.owned:
                self._checker.assigned(self.group, self.generation, self._consumer_id, partition)
