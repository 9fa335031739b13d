"""Topics deleted: the controller's decisions. Pure.

A topic that is to go is marked in ZooKeeper first. Clients stop seeing it at once; its replicas are told to
remove their logs when all of them can be told, and when all have answered, its znodes go. While a broker
with a replica is down the deletion waits, since the replica would come back with the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from coordinator.controller.effects import AnswerRequest, DecisionSteps, MarkDeleted, RemoveTopic
from coordinator.controller.events import DeleteTopics, TopicResult
from coordinator.controller.requests import RequestBatch
from coordinator.controller.state import ControllerState, Topic, TopicDeletion
from coordinator.controller.topic_rules import NAME_LENGTH_MAX
from protocol.errors import ErrorCode
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.topic_partition import TopicPartition


class Deletions:
    """Sees topics out."""

    def __init__(self, state: ControllerState, batch: RequestBatch) -> None:
        self._state = state
        self._batch = batch

    def delete(self, event: DeleteTopics) -> DecisionSteps[None]:
        """Mark topics and begin; the requester hears of it when a topic has gone, or cannot go yet."""
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
                result = TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
                yield AnswerRequest(event.token, name, result)
            elif deletion is not None and not deletion.started:
                # Clients do not see the topic any more; its znodes go when the missing broker is back.
                yield from self._tell(name, deletion, after_told=True)

    def order(self, names: Sequence[str]) -> DecisionSteps[None]:
        """Begin with topics that somebody else has marked."""
        for name in names:
            topic = self._state.topics.get(name)
            if topic is None:
                yield RemoveTopic(name)
            elif name not in self._state.deletions:
                self._state.deletions[name] = TopicDeletion()
                self._batch.metadata(_partitions(topic))
        yield from self.resume()

    def resume(self, names: Sequence[str] | None = None) -> DecisionSteps[None]:
        """Begin with the deletions that wait and need not any more."""
        for name in list(self._state.deletions) if names is None else names:
            deletion = self._state.deletions[name]
            topic = self._state.topics[name]
            replicas = [
                (replica, at)
                for at in _partitions(topic)
                for replica in self._state.partition(at).assignment.replicas
            ]
            if deletion.started or not all(self._state.has_log(replica, at) for replica, at in replicas):
                continue
            deletion.started = True
            deletion.waiting = dict.fromkeys(replicas)
            for replica, at in replicas:
                self._batch.stop_replica(replica, [at], delete=True)
            if not replicas:
                yield from self._remove(name, deletion)

    def answered(
        self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> DecisionSteps[None]:
        """A broker has removed logs, or could not."""
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
                    deletion.started = False  # It begins anew with the next change of brokers.
            if deletion.started and not deletion.waiting:
                yield from self._remove(topic.topic_name, deletion)

    def lose_brokers(self, gone: Collection[int]) -> None:
        """What these brokers had not yet answered has to be said to them again when they are back."""
        for deletion in self._state.deletions.values():
            if any(broker_id in gone for broker_id, _ in deletion.waiting):
                deletion.started = False
                deletion.waiting = {}

    def _remove(self, name: str, deletion: TopicDeletion) -> DecisionSteps[None]:
        yield RemoveTopic(name)
        self._state.remove_topic(name)
        yield from self._tell(name, deletion, after_told=False)

    def _tell(self, name: str, deletion: TopicDeletion, *, after_told: bool) -> DecisionSteps[None]:
        tokens, deletion.requests = deletion.requests, []
        for token in dict.fromkeys(tokens):
            yield AnswerRequest(
                token, name, TopicResult(name), after_told=after_told, needed=(self._state.controller_id,)
            )


def _partitions(topic: Topic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for number in topic.partitions]
