"""The controller's decisions on new topics and new partitions. Pure."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast_log.coordinator.controller.deletions import Deletions
from holdfast_log.coordinator.controller.effects import (
    AnswerRequest,
    CreateTopic,
    DecisionSteps,
    Pause,
    WriteAssignments,
)
from holdfast_log.coordinator.controller.events import (
    CreatePartitions,
    CreateTopics,
    MorePartitions,
    TopicCreation,
    TopicResult,
)
from holdfast_log.coordinator.controller.leaders import Leaders
from holdfast_log.coordinator.controller.partition_limits import (
    PartitionBudget,
    PartitionLimits,
    check_znode_size,
)
from holdfast_log.coordinator.controller.requests import RequestBatch
from holdfast_log.coordinator.controller.state import ControllerState, PartitionRecord, Topic
from holdfast_log.coordinator.controller.topic_rules import (
    TopicDefaults,
    ValidateConfigs,
    assign_more_partitions,
    assign_new_topic,
    check_name,
)
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.configs import encode_config
from holdfast_log.coordinator.znodes.topics import encode_topic
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

_TOPICS_AT_ONCE = 20
"""Topics decided on between two pauses, since a request may name tens of thousands: one takes a tenth of a
millisecond."""


class TopicChanges:
    """Creates topics and adds partitions to them."""

    def __init__(
        self,
        state: ControllerState,
        batch: RequestBatch,
        leaders: Leaders,
        deletions: Deletions,
        defaults: TopicDefaults,
        limits: PartitionLimits,
        validate_configs: ValidateConfigs,
        new_topic_id: Callable[[], uuid.UUID],
    ) -> None:
        self._state = state
        self._batch = batch
        self._leaders = leaders
        self._deletions = deletions
        self._defaults = defaults
        self._limits = limits
        self._validate_configs = validate_configs
        self._new_topic_id = new_topic_id

    def create(self, event: CreateTopics) -> DecisionSteps[None]:
        """Create the valid topics of a request; the leaders of all are elected together."""
        results: dict[str, TopicResult] = {}
        new: list[TopicPartition] = []
        twice = _named_twice([topic.name for topic in event.topics])
        # Leaders continue after those of the last topic, so that small topics do not all start on one broker.
        start = sum(len(other.partitions) for other in self._state.topics.values())
        budget = self._budget()
        for number, topic in enumerate(event.topics, 1):
            if number % _TOPICS_AT_ONCE == 0:
                yield Pause()
            try:
                if topic.name in twice:
                    raise BrokerError(
                        ErrorCode.INVALID_REQUEST, f"Found multiple entries for topic '{topic.name}'."
                    )
                assigned = self._check(topic, budget, start)
                if event.validate_only:
                    results[topic.name] = _result(topic.name, assigned, uuid.UUID(int=0))
                else:
                    made = yield from self._make(topic, assigned)
                    results[topic.name] = _result(topic.name, assigned, made.topic_id)
                    new += [TopicPartition(topic.name, index) for index in assigned]
                start += len(assigned)
            except BrokerError as error:
                results[topic.name] = TopicResult(topic.name, error.code, error.message)
        yield from self._finish(event.token, new, results)

    def grow(self, event: CreatePartitions) -> DecisionSteps[None]:
        """Add partitions to the valid topics of a request."""
        results: dict[str, TopicResult] = {}
        new: list[TopicPartition] = []
        twice = _named_twice([topic.name for topic in event.topics])
        budget = self._budget()
        for position, growth in enumerate(event.topics, 1):
            if position % _TOPICS_AT_ONCE == 0:
                yield Pause()
            try:
                if growth.name in twice:
                    raise BrokerError(
                        ErrorCode.INVALID_REQUEST, f"Duplicate topic '{growth.name}' in request."
                    )
                topic, added = self._check_growth(growth, budget)
                if not event.validate_only:
                    records = {number: PartitionRecord(assignment) for number, assignment in added.items()}
                    grown = replace(topic, partitions={**topic.partitions, **records}).assignment()
                    check_znode_size(topic.name, encode_topic(grown))
                    topic.partitions |= records
                    yield WriteAssignments({topic.name: grown})
                    new += [TopicPartition(topic.name, number) for number in added]
                results[growth.name] = _result(topic.name, added, topic.topic_id)
            except BrokerError as error:
                results[growth.name] = TopicResult(growth.name, error.code, error.message)
        yield from self._finish(event.token, new, results)

    def _budget(self) -> PartitionBudget:
        replicas = sum(
            len(topic.partitions) * len(topic.partitions[0].assignment.replicas)
            for topic in self._state.topics.values()
            if 0 in topic.partitions
        )
        return PartitionBudget(self._limits, replicas, len(self._state.brokers))

    def _check(
        self, topic: TopicCreation, budget: PartitionBudget, start: int
    ) -> dict[int, ReplicaAssignment]:
        self._check_left_over(topic.name)
        check_name(topic.name, self._state.topics, self._state.colliding_topic(topic.name))
        if topic.configs:
            try:
                self._validate_configs(topic.configs)
            except ValueError as error:
                raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
        return assign_new_topic(topic, self._defaults, self._state.sites(), budget, start)

    def _check_left_over(self, name: str) -> None:
        """Refuse the name of a topic that clients do not see but whose znodes are still there."""
        if name in self._state.unreadable:
            raise BrokerError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"Topic '{name}' already exists. ZooKeeper's data of it cannot be read, so it is set aside "
                f"until that is repaired: {self._state.unreadable[name]}",
            )
        if name in self._state.deletions:
            waited_for = self._deletions.waits_for(name)
            raise BrokerError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"Topic '{name}' is marked for deletion. Its replicas on broker(s) "
                f"{', '.join(map(str, waited_for))} are not removed yet; start these brokers, and create the "
                "topic once they have removed their replicas",
            )

    def _make(self, topic: TopicCreation, assigned: dict[int, ReplicaAssignment]) -> DecisionSteps[Topic]:
        partitions = {number: PartitionRecord(assignment) for number, assignment in assigned.items()}
        made = Topic(topic.name, self._new_topic_id(), partitions)
        configs = {key: value for key, value in topic.configs.items() if value is not None}
        check_znode_size(topic.name, encode_topic(made.assignment()) + encode_config(configs))
        if not (yield CreateTopic(topic.name, made.assignment(), configs)):
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        self._state.add_topic(made)
        return made

    def _check_growth(
        self, growth: MorePartitions, budget: PartitionBudget
    ) -> tuple[Topic, dict[int, ReplicaAssignment]]:
        topic = self._state.topics.get(growth.name)
        if topic is None or growth.name in self._state.deletions:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{growth.name}' does not exist."
            )
        existing = {number: partition.assignment for number, partition in topic.partitions.items()}
        if any(assignment.is_reassigning for assignment in existing.values()):
            raise BrokerError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{growth.name}'. Add partitions "
                "afterwards",
            )
        return topic, assign_more_partitions(growth, existing, self._state.sites(), budget)

    def _finish(
        self, token: int, new: Sequence[TopicPartition], results: dict[str, TopicResult]
    ) -> DecisionSteps[None]:
        yield from self._leaders.elect_leaderless(new)
        yield from self._batch.flush()
        made_of: dict[str, list[TopicPartition]] = {}
        for at in new:
            made_of.setdefault(at[0], []).append(at)
        for name, result in results.items():
            made = made_of.get(name, [])
            yield AnswerRequest(
                token, name, result, after_brokers_answered=bool(made), needed=self._leaders_of(made)
            )

    def _leaders_of(self, partitions: Sequence[TopicPartition]) -> tuple[int, ...]:
        states = [self._state.partition(at).state for at in partitions]
        leaders = dict.fromkeys(state.leader for state in states if state is not None)
        return (*leaders, self._state.controller_id)


def _named_twice(names: Sequence[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _result(name: str, assigned: dict[int, ReplicaAssignment], topic_id: uuid.UUID) -> TopicResult:
    replicas = len(next(iter(assigned.values())).replicas)
    return TopicResult(name, topic_id=topic_id, partition_count=len(assigned), replication_factor=replicas)
