"""Which batches to send now: by their age, by the order within a partition, and by which brokers are ready.

Asked in each turn of the sending thread, under the producer's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.errors import UnsupportedRequestError, is_retriable
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.conditions import (
    APPEND_IDS_FEATURE,
    APPEND_IDS_VERSION,
    FEATURE,
    KEY_VERSIONS_FEATURE,
    misplaced,
    number_guards,
    recreated,
)
from holdfast_log.clients.sending.outcomes import Outcomes
from holdfast_log.clients.sending.producer_id import ProducerId
from holdfast_log.clients.sending.queues import PartitionQueue, Queues, TopicQueues
from holdfast_log.clients.sending.requests import RequestsToBe
from holdfast_log.clients.sending.settings import SenderSettings
from holdfast_log.clients.sending.tally import SendingTally
from holdfast_log.clients.sending.write_access import WriteAccess
from holdfast_log.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from holdfast_log.clients.sending.transaction_port import TransactionPort


class Departures:
    """Takes batches from the queues for as many requests as brokers may have under way."""

    def __init__(
        self,
        queues: Queues,
        connection: Connection,
        settings: SenderSettings,
        producer_id: ProducerId,
        outcomes: Outcomes,
        tally: SendingTally,
        access: WriteAccess | None,
        fence: OwnerFence | None = None,
        transactions: TransactionPort | None = None,
    ) -> None:
        self.look_at_ms = 0
        """When a batch that has to wait may be sent, even if nothing else happens."""
        self.requests_in_flight: dict[int, int] = {}
        self._queues = queues
        self._connection = connection
        self._metadata = connection.metadata
        self._settings = settings
        self._id = producer_id
        self._outcomes = outcomes
        self._tally = tally
        self._access = access
        self._fence = fence
        self._transactions = transactions

    def choose(self, now_ms: int) -> list[tuple[int, list[Batch]]]:
        """The batches to send now, with their broker, by request. They count as under way from here on."""
        requests: list[tuple[int, list[Batch]]] = []
        while True:
            taken = self._take_round(now_ms)
            if not taken:
                return requests
            for node in taken:
                self.requests_in_flight[node] = self.requests_in_flight.get(node, 0) + 1
            requests += taken.items()

    def _take_round(self, now_ms: int) -> dict[int, list[Batch]]:
        """The batches for one more request to each ready broker: the first of each partition."""
        requests = RequestsToBe(self._settings.max_request_size)
        for topic in self._queues.waiting:
            self._place_keyless(topic, now_ms)
        for queue in self._queues.busy:
            if not queue.batches or not self._may_write(queue):
                continue
            node = self._metadata.leader(queue.topic, queue.partition)
            if node == NO_NODE:
                self._metadata.renew()
                continue
            if self._can_send_to(node) and self._may_go(queue, now_ms):
                if self._fence is not None and not self._is_covered(queue, self._fence, now_ms):
                    continue
                batch = queue.batches[0]
                if batch.is_conditional and not self._may_be_judged(queue, node, now_ms):
                    continue
                if requests.has_room(node, batch):  # Else in the next round.
                    requests.add(node, self._take(queue))
        return requests.batches

    def _may_be_judged(self, queue: PartitionQueue, node: int, now_ms: int) -> bool:
        """Whether the broker can judge the condition of a partition's first batch. If not, the batch waits or
        is given up."""
        batch = queue.batches[0]
        error: Exception | None
        if batch.expected_offset >= 0 and not self.knows_conditions(node):
            error = UnsupportedRequestError(
                f"broker {node} does not support messages with an offset ({FEATURE}): send without one"
            )
        elif batch.expected_version is not None and not self._has_feature(node, KEY_VERSIONS_FEATURE):
            error = UnsupportedRequestError(
                f"broker {node} does not support messages with an expected version ({KEY_VERSIONS_FEATURE}): "
                "send without one"
            )
        elif batch.append_id and not self._has_feature(node, APPEND_IDS_FEATURE, APPEND_IDS_VERSION):
            error = UnsupportedRequestError(
                f"broker {node} does not support append ids ({APPEND_IDS_FEATURE}, version "
                f"{APPEND_IDS_VERSION}): upgrade it, or send without one"
            )
        else:
            error = recreated(self._queues, batch, self._metadata) or misplaced(batch, node, self._metadata)
        if error is None:
            return True
        if is_retriable(error):
            batch.last_error = error
            self._metadata.renew()
            return False
        self._outcomes.give_up_first(queue, error)
        return self.look_again(now_ms)

    def _is_covered(self, queue: PartitionQueue, fence: OwnerFence, now_ms: int) -> bool:
        """Whether the producer's fence covers a partition. If not, its first batch is given up: nothing may
        be written without the fence."""
        try:
            fence.token(TopicPartition(queue.topic, queue.partition))
        except ValueError as error:
            self._outcomes.give_up_first(queue, error)
            return self.look_again(now_ms)
        return True

    def knows_conditions(self, node: int) -> bool:
        """Whether this broker supports messages that expect an offset."""
        return self._has_feature(node, FEATURE)

    def _has_feature(self, node: int, feature: str, version: int = 1) -> bool:
        conversation = self._connection.conversation(node)
        return conversation is not None and conversation.features.get(feature, 0) >= version

    def _may_write(self, queue: PartitionQueue) -> bool:
        # Asked before a batch is old enough, so that its partition joins the transaction meanwhile.
        if self._transactions is not None and not self._transactions.may_send(queue.topic, queue.partition):
            return False
        return self._access is None or self._access.may_send(queue.topic, queue.partition)

    def _can_send_to(self, node: int) -> bool:
        in_flight = self.requests_in_flight.get(node, 0)
        return in_flight < self._settings.max_in_flight and self._connection.is_ready(node)

    def _may_go(self, queue: PartitionQueue, now_ms: int) -> bool:
        """Whether the first batch of a partition may be sent now, by its age and the order of batches."""
        batch = queue.batches[0]
        if batch.retry_at_ms > now_ms:
            return self.look_again(batch.retry_at_ms)
        if not self._is_ripe(batch, now_ms):
            return self.look_again(batch.created_ms + self._settings.linger_ms)
        if not self._settings.is_idempotent:
            # A broker cannot notice a batch that comes too early: one at a time, unless none is retried.
            return not queue.in_flight or self._settings.retries == 0
        if queue.sequences.wants_new_epoch and not queue.in_flight and not self._id.begin_epoch(queue):
            return False
        if batch.base_sequence >= 0:
            return not queue.in_flight or batch.number < queue.in_flight[0].number
        return queue.sequences.can_stamp(self._id.id, self._id.epoch)

    def _is_ripe(self, batch: Batch, now_ms: int) -> bool:
        return (
            batch.is_closed
            or self._queues.flushing > 0
            or self._queues.waiting_for_room > 0
            or now_ms - batch.created_ms >= self._settings.linger_ms
        )

    def look_again(self, at_ms: int) -> bool:
        """Choose again at `at_ms` at the latest. Returns False, for callers to return: not now."""
        self.look_at_ms = min(self.look_at_ms, at_ms)
        return False

    def _take(self, queue: PartitionQueue) -> Batch:
        batch = queue.take()
        batch.attempts += 1
        batch.is_unwritten = False
        self._tally.taken(batch, self._queues.topics[batch.topic].batch_size)
        batch.attempt = queue.attempt
        if batch.guards:
            number_guards(self._queues, batch)
        if self._settings.is_idempotent and batch.base_sequence < 0:
            batch.base_sequence = queue.sequences.stamp(len(batch))
        return batch

    def _place_keyless(self, topic: TopicQueues, now_ms: int) -> None:
        """Give batches without a partition one whose leader is ready, in turn, once they are old enough."""
        info = self._metadata.topics.get(topic.topic)
        if info is None or not topic.keyless:
            return
        free = [
            number
            for number in info.available
            if self._can_send_to(self._metadata.leader(topic.topic, number))
        ]
        if len(info.partitions) == 1:
            free = [0]
        while topic.keyless and free:
            batch = topic.keyless[0]
            if not self._is_ripe(batch, now_ms):
                self.look_again(batch.created_ms + self._settings.linger_ms)
                return
            topic.keyless.popleft()
            batch.is_closed = True
            batch.partition = free[topic.turn % len(free)]
            topic.turn += 1
            queue = topic.queue(batch.partition)
            queue.batches.append(batch)
            self._queues.busy[queue] = None
            free.remove(batch.partition)
