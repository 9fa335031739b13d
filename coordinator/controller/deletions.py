"""Topics deleted: the controller's decisions. Pure.

The topic is first marked in /admin/delete_topics, and clients stop seeing it at once. When every broker with
a replica is alive, all are asked to remove their logs; when all have answered, the topic's znodes are
removed. While a broker with a replica is down the deletion waits, because the replica would come back with
the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast_log.coordinator.controller.effects import (
    AnswerRequest,
    DecisionSteps,
    MarkDeleted,
    Pause,
    RemoveTopic,
)
from holdfast_log.coordinator.controller.events import DeleteTopics, TopicResult
from holdfast_log.coordinator.controller.leaders import PARTITIONS_AT_ONCE
from holdfast_log.coordinator.controller.requests import RequestBatch
from holdfast_log.coordinator.controller.state import ControllerState, Topic, TopicDeletion
from holdfast_log.coordinator.controller.topic_rules import NAME_LENGTH_MAX
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from holdfast_log.protocol.topic_partition import TopicPartition


class Deletions:
    """Deletes topics."""

    def __init__(self, state: ControllerState, batch: RequestBatch) -> None:
        self._state = state
        self._batch = batch

    def delete(self, event: DeleteTopics) -> DecisionSteps[None]:
        """Mark topics and start deleting. The requester is answered per topic: once it is removed, or at once
        if its deletion has to wait for a broker."""
        known = [name for name in event.names if name in self._state.topics]
        new = [name for name in dict.fromkeys(known) if name not in self._state.deletions]
        if new:
            yield MarkDeleted(new)
        for name in known:
            self._state.deletions.setdefault(name, TopicDeletion()).requests.append(event.token)
        for name in new:
            self._batch.metadata(_partitions(self._state.topics[name]))
        yield from self.resume()
        yield from self._batch.flush()
        for name in event.names:
            deletion = self._state.deletions.get(name)
            if name not in known:
                message = f"there is no topic {name[:NAME_LENGTH_MAX]!r}"
                if name in self._state.unreadable:
                    message = f"topic {name!r} cannot be deleted: {self._state.unreadable[name]}"
                result = TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
                yield AnswerRequest(event.token, name, result)
            elif deletion is not None and not deletion.started:
                # Clients no longer see the topic; its znodes are removed when the missing broker is back.
                yield from self._answer_requests(name, deletion, after_brokers_answered=True)

    def adopt_marked(self, names: Sequence[str]) -> DecisionSteps[None]:
        """Start deleting topics that another process has marked in ZooKeeper."""
        for name in names:
            topic = self._state.topics.get(name)
            if name in self._state.unreadable:
                continue  # Its mark stays, and is adopted when the topic is taken up.
            if topic is None:
                self._state.first_leader_epoch = yield RemoveTopic(name)
            elif name not in self._state.deletions:
                self._state.deletions[name] = TopicDeletion()
                self._batch.metadata(_partitions(topic))
        yield from self.resume()

    def resume(self, names: Sequence[str] | None = None) -> DecisionSteps[None]:
        """Start the waiting deletions whose replicas are all online now; all, or those of `names`. Very many
        partitions are looked at in several turns."""
        looked_at = 0
        for name in list(self._state.deletions) if names is None else names:
            deletion = self._state.deletions[name]
            waiting: dict[tuple[int, TopicPartition], None] = {}
            by_broker: dict[int, list[TopicPartition]] = {}
            are_online = True
            for at in _partitions(self._state.topics[name]):
                looked_at += 1
                if looked_at % PARTITIONS_AT_ONCE == 0:
                    yield Pause()
                for replica in self._state.partition(at).assignment.replicas:
                    are_online = are_online and self._state.is_online(replica, at)
                    waiting[replica, at] = None
                    by_broker.setdefault(replica, []).append(at)
            if deletion.started or not are_online:
                continue
            deletion.started = True
            deletion.waiting = waiting
            for replica, partitions in by_broker.items():
                self._batch.stop_replica(replica, partitions, delete=True)
            if not waiting:
                yield from self._remove(name, deletion)

    def answered(
        self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> DecisionSteps[None]:
        """Handle a broker's answer: which logs it has removed, and which not."""
        if response.error_code != ErrorCode.NONE:
            return
        errors = {(row.topic_name, row.partition_index): row.error_code for row in response.partition_errors}
        for topic in request.topic_states:
            deletion = self._state.deletions.get(topic.topic_name)
            if deletion is None or not deletion.started:
                continue
            for row in topic.partition_states:
                at = TopicPartition(topic.topic_name, row.partition_index)
                if not row.delete_partition:
                    continue
                if errors.get(at, ErrorCode.NONE) == ErrorCode.NONE:
                    deletion.waiting.pop((broker_id, at), None)
                else:
                    deletion.started = False  # Retried at the next change of brokers.
            if deletion.started and not deletion.waiting:
                yield from self._remove(topic.topic_name, deletion)

    def waits_for(self, name: str) -> list[int]:
        """The brokers that must return or answer before a topic's deletion can end."""
        deletion = self._state.deletions[name]
        if deletion.started:
            return sorted({broker_id for broker_id, _ in deletion.waiting})
        return sorted(
            {
                replica
                for at in _partitions(self._state.topics[name])
                for replica in self._state.partition(at).assignment.replicas
                if not self._state.is_online(replica, at)
            }
        )

    def lose_brokers(self, gone: Collection[int]) -> None:
        """Restart deletions that wait for answers of these brokers, once the brokers are back."""
        for deletion in self._state.deletions.values():
            if any(broker_id in gone for broker_id, _ in deletion.waiting):
                deletion.started = False
                deletion.waiting = {}

    def _remove(self, name: str, deletion: TopicDeletion) -> DecisionSteps[None]:
        self._state.first_leader_epoch = yield RemoveTopic(name)
        self._state.remove_topic(name)
        yield from self._answer_requests(name, deletion, after_brokers_answered=False)

    def _answer_requests(
        self, name: str, deletion: TopicDeletion, *, after_brokers_answered: bool
    ) -> DecisionSteps[None]:
        tokens, deletion.requests = deletion.requests, []
        for token in dict.fromkeys(tokens):
            yield AnswerRequest(
                token,
                name,
                TopicResult(name),
                after_brokers_answered=after_brokers_answered,
                needed=(self._state.controller_id,),
            )


def _partitions(topic: Topic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for number in topic.partitions]
