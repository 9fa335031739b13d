"""The administrator of a simulated cluster: it creates topics, and later changes them under load."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from twisted.python.failure import Failure

from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast_log.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from holdfast_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast_log.protocol.messages.elect_leaders import ElectLeadersRequest
from tests.sim.client import PASSING, RETRY_S, Client, Surroundings
from tests.sim.history import Incarnation
from tests.sim.plan import Change, Topic

R = TypeVar("R", bound=Response)

_TRIM_ERRORS = PASSING | {ErrorCode.OFFSET_OUT_OF_RANGE}
"""Errors for a deletion. A new leader may not know yet that the offset is committed."""
_TIMEOUT_MS = 2000
_PARTITIONS_MAX = 5
_MEAN_PAUSE_S = 6.0
_MEAN_TRIM_PAUSE_S = 2.0
_ALL_SHARE = 0.3
"""The share of deletions that delete everything that consumers have read."""


class Operator(Client):
    """Creates topics, retrying until they exist; changes them from `begin_changes` to `end_changes`."""

    def __init__(
        self,
        around: Surroundings,
        name: str,
        topics: Sequence[Topic],
        changes: Sequence[Change],
        brokers: int,
    ) -> None:
        super().__init__(around, name)
        self._topics = topics
        self._changes = [change for change in changes if change is not Change.TRIM]
        self._trimmed = [topic for topic in topics if topic.is_trimmed and Change.TRIM in changes]
        self._brokers_all = range(1, brokers + 1)
        self._missing = {topic.name: topic for topic in topics}
        self._next: Callable[[], None] | None = self._create
        self._is_changing = False
        self._is_asking = False

    @property
    def is_done(self) -> bool:
        """Whether every planned topic exists and no change is pending."""
        return not self._missing and self._next is None and not self._is_asking

    def begin(self) -> None:
        self.refresh()

    def begin_changes(self) -> None:
        self._is_changing = True
        if self._changes:
            self.process.run(self._change_later)
        if self._trimmed:
            self.process.run(self._trim_later)

    def end_changes(self) -> None:
        self._is_changing = False

    # Requests to the controller: each is sent as soon as metadata names the controller

    def metadata_arrived(self) -> None:
        work, self._next = self._next, None
        if work is None:
            return
        if self.address_of(self.controller_id) is None:
            self._try_again(work)
        else:
            work()

    def _try_again(self, work: Callable[[], None]) -> None:
        self._next = work
        self.later(RETRY_S, self.refresh)

    def _ask(self, request: Request[R], answered: Callable[[R], None], work: Callable[[], None]) -> None:
        """Send the controller a request; call `work` if it fails."""
        address = self.address_of(self.controller_id)
        assert address is not None

        self._is_asking = True

        def done(response: R) -> None:
            self._is_asking = False
            answered(response)

        def failed(failure: Failure) -> None:
            self._is_asking = False
            work()

        self.send(address, request).addCallbacks(done, failed)

    def _create(self) -> None:
        self._ask(_creation(self._missing.values()), self._created, lambda: self._try_again(self._create))

    def _created(self, response: CreateTopicsResponse) -> None:
        for row in response.topics:
            if row.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._missing.pop(row.name, None)
        if self._missing:
            self._try_again(self._create)

    # Changes

    def _change_later(self) -> None:
        self.later(self.rng.expovariate(1 / _MEAN_PAUSE_S), self._change)

    def _change(self) -> None:
        if not self._is_changing:
            return
        if self.is_done:
            topic = self.rng.choice(self._topics)
            change = self.rng.choice(self._changes)
            self.world.trace(self.name, f"{change.value}: {topic.name}")
            self._next = {
                Change.GROW: lambda: self._grow(topic),
                Change.MOVE: lambda: self._move(topic),
                Change.ELECT: self._elect,
                Change.REMAKE: lambda: self._remake(topic),
            }[change]
            self.refresh()
        self._change_later()

    def _once(self, request: Request[R]) -> None:
        """Send the controller a request once, and ignore the outcome."""
        address = self.address_of(self.controller_id)
        assert address is not None
        self.send(address, request).addErrback(lambda failure: None)

    def _grow(self, topic: Topic) -> None:
        known = self.topics.get(topic.name)
        if known is not None and len(known.leaders) < _PARTITIONS_MAX and not topic.is_owned:
            wanted = CreatePartitionsTopic(name=topic.name, count=len(known.leaders) + 1, assignments=None)
            self._once(CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=False))

    def _move(self, topic: Topic) -> None:
        """Reassign one partition to the same number of replicas, on other brokers or in another order."""
        known = self.topics.get(topic.name)
        if known is None or not known.leaders:
            return
        partition = self.rng.choice(list(known.leaders))
        replicas = self.rng.sample(self._brokers_all, topic.replicas)
        if self.rng.random() < 0.2:
            moved = ReassignablePartition(partition_index=partition, replicas=None)  # Cancels a pending move.
        else:
            moved = ReassignablePartition(partition_index=partition, replicas=replicas)
        self._once(
            AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=topic.name, partitions=[moved])]
            )
        )

    def _elect(self) -> None:
        self._once(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=_TIMEOUT_MS))

    def _trim_later(self) -> None:
        self.later(self.rng.expovariate(1 / _MEAN_TRIM_PAUSE_S), self._trim)

    def _trim(self) -> None:
        """Delete the records of one partition up to an offset that consumers have read: all records before
        it are committed."""
        if not self._is_changing:
            return
        self._trim_later()
        topic = self.rng.choice(self._trimmed)
        known = self.topics.get(topic.name)
        at = (topic.name, self.rng.randrange(topic.partitions))
        leader = self.leader_of(at)
        if known is None or leader is None:
            self.refresh()
            return
        place = Incarnation(at, known.topic_id)
        read = len(self.history.seen.get(place, ()))
        offset = read if self.rng.random() < _ALL_SHARE else self.rng.randint(0, read)
        self.world.trace(self.name, f"deletes the records of {place} before {offset}")
        self.history.deletes(place, offset)
        wanted = DeleteRecordsPartition(partition_index=at[1], offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=at[0], partitions=[wanted])], timeout_ms=_TIMEOUT_MS
        )
        self.send(leader[0], request).addCallbacks(
            lambda response: self._trimmed_to(place, offset, response), lambda failure: self.refresh()
        )

    def _trimmed_to(self, place: Incarnation, offset: int, response: DeleteRecordsResponse) -> None:
        row = response.topics[0].partitions[0]
        if row.error_code == ErrorCode.NONE:
            if not offset <= row.low_watermark <= self.history.deleted.get(place, 0):
                self.history.violation(
                    f"{self.name} was told that {place} starts at {row.low_watermark}, after it had deleted "
                    f"the records before {offset}"
                )
            return
        if row.error_code not in _TRIM_ERRORS:
            code = ErrorCode(row.error_code).name
            self.history.violation(f"{self.name} got {code} for deleting {place} before {offset}")
        self.refresh()

    def _remake(self, topic: Topic, old_id: uuid.UUID | None = None) -> None:
        """Delete a topic and create it again: take the next step that metadata calls for, then repeat."""
        known = self.topics.get(topic.name)
        if known is None or not topic.is_remade:
            return
        if old_id is None:
            old_id = known.topic_id

        def go_on(_: object = None) -> None:
            self._try_again(lambda: self._remake(topic, old_id))

        if topic.name not in self.present:
            self._ask(_creation([topic]), go_on, go_on)
        elif known.topic_id == old_id:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(topic_id=old_id)], topic_names=[], timeout_ms=_TIMEOUT_MS
            )
            self._ask(request, go_on, go_on)


def _creation(topics: Iterable[Topic]) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replicas,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs],
            )
            for topic in topics
        ],
        timeout_ms=_TIMEOUT_MS,
        validate_only=False,
    )
