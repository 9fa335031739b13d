"""The sending side of a producer: the seed's event loop, one turn at a time.

    configure any new broker connections
    select; handle responses; write
    handle topic metadata
    handle incomplete requests
    handle retries
    handle new requests

One thread runs it, and only that thread touches the connection; what it shares with the threads that call
`send` are the queues, under their lock. Encoding, compressing and calling back happen outside the lock.
`clients.outcomes` decides what becomes of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.batch import Batch
from clients.conditions import (
    FEATURE,
    misplaced,
    number_guards,
    refusal,
    refused_by_guards,
)
from clients.connection import Connection
from clients.errors import DeliveryTimeoutError, UnsupportedRequestError, is_retriable
from clients.feedback.sending import SendingTally
from clients.link import Call, Reply
from clients.metadata import NO_NODE
from clients.outcomes import Outcomes
from clients.partitioner import Partitioner
from clients.produce_requests import RequestsToBe, encode, produce_request
from clients.producer_id import NO_PRODUCER, ProducerId
from clients.queues import PartitionQueue, Queues, TopicQueues, without_key
from clients.sender_settings import SenderSettings
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.produce import PartitionProduceResponse, ProduceResponse

if TYPE_CHECKING:
    from clients.ownership.writing import Writing


class Sender:
    """Takes batches from the queues and sees them through. All methods belong to the sending thread, save
    those that say otherwise."""

    def __init__(
        self,
        queues: Queues,
        connection: Connection,
        settings: SenderSettings,
        partitioner: Partitioner,
        writing: Writing | None = None,
    ) -> None:
        self.is_flushing = 0
        """How many callers wait for all that is queued: nothing lingers meanwhile. Under the lock."""
        self.tally = SendingTally(connection.events)
        self._queues = queues
        self._lock = queues.lock
        self._connection = connection
        self._metadata = connection.metadata
        self._network = connection.network
        self._settings = settings
        self._partitioner = partitioner
        self._writing = writing
        self._id = ProducerId(settings.retry_backoff_ms)
        self._outcomes = Outcomes(queues, settings, self.tally)
        self._seen_update = 0
        self._requests_in_flight: dict[int, int] = {}
        self._outbox: list[Call] = []
        self._next_turn_ms = 0

    # One turn of the loop -----------------------------------------------------------------------------

    def turn(self, max_wait_ms: int) -> None:
        """Send and receive what can be; waits for something to happen at most `max_wait_ms`."""
        self._configure_connections()
        now_ms = self._network.now_ms()
        wait_ms = min(max_wait_ms, max(0, self._next_turn_ms - now_ms))
        calls, self._outbox = self._outbox, []
        if self._writing is not None:
            with self._lock:
                claims, due_ms = self._writing.calls(now_ms)
            calls += claims
            wait_ms = wait_ms if due_ms is None else max(0, min(wait_ms, due_ms - now_ms))
        replies = self._connection.poll(wait_ms, *calls)
        now_ms = self._network.now_ms()
        with self._lock:
            for reply in replies:
                self._handle_reply(reply, now_ms)
            if self._writing is not None:
                self._follow_ownership(self._writing)
            self._queues.forget_idle()
            self._handle_metadata(now_ms)
            self._handle_incomplete(now_ms)
            taken = self._handle_new(now_ms)
            self._queues.look_at_ms = self._next_turn_ms
        for node, batches in taken:
            for batch in batches:
                encode(batch, self._queues.queue_of(batch).sequences)
            request = produce_request(
                batches,
                self._settings.acks,
                self._settings.request_timeout_ms,
                tells_offsets=self._knows_conditions(node),
            )
            expects_response = self._settings.acks != 0
            self._outbox.append(Call(node, request, tag=batches, expects_response=expects_response))
        self._outcomes.call_back()
        self._connection.events.tell()

    def fail_all(self, error: Exception) -> None:
        """Give up all that waits or is under way."""
        with self._lock:
            self._queues.fatal_error = self._queues.fatal_error or error
            for topic in self._queues.topics.values():
                for waiting in topic.unplaced:
                    self._outcomes.finish(waiting.slip, error)
                topic.partition_count = 0
                topic.unplaced.clear()
                for batch in topic.keyless:
                    self._outcomes.finish(batch, error)
                topic.keyless.clear()
                for queue in topic.partitions.values():
                    for batch in (*queue.in_flight, *queue.batches):
                        self._outcomes.finish(batch, error)
                    queue.batches.clear()
                    queue.in_flight.clear()
            self._lock.notify_all()
        self._outcomes.call_back()
        self._connection.events.tell()

    def _configure_connections(self) -> None:
        """Open the connections to the leaders of what waits."""
        with self._lock:
            leaders = {
                self._metadata.leader(queue.topic, queue.partition): None
                for queue in self._queues.busy
                if queue.batches
            }
            leaders |= {
                self._metadata.leader(topic.topic, partition): None
                for topic in self._queues.waiting
                if topic.keyless and topic.topic in self._metadata.topics
                for partition in self._metadata.topics[topic.topic].available
            }
        for node in leaders:
            if node != NO_NODE:
                self._connection.open(node)

    # Responses ----------------------------------------------------------------------------------------

    def _handle_reply(self, reply: Reply, now_ms: int) -> None:
        if self._writing is not None and self._writing.handle(reply, now_ms):
            return
        if self._id.owns(reply):
            error = self._id.handle(reply, now_ms)
            self._queues.fatal_error = self._queues.fatal_error or error
            return
        node = reply.call.node
        self._requests_in_flight[node] -= 1
        batches: list[Batch] = reply.call.tag
        if reply.error is not None:
            self._metadata.renew()
            for batch in batches:
                self._outcomes.failed(batch, reply.error, now_ms, was_sent=reply.was_sent)
        elif reply.response is None:
            for batch in batches:
                self._outcomes.succeeded(batch)
        else:
            assert isinstance(reply.response, ProduceResponse)
            self._handle_response(batches, reply.response, now_ms)

    def _handle_response(self, batches: list[Batch], response: ProduceResponse, now_ms: int) -> None:
        rows = {
            (topic.name, row.index): row for topic in response.responses for row in topic.partition_responses
        }
        for batch in batches:
            row = rows.get((batch.topic, batch.partition))
            if row is None:
                error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response leaves the partition out")
                self._outcomes.failed(batch, error, now_ms)
            elif row.error_code == ErrorCode.NONE:
                batch.base_offset = row.base_offset
                batch.log_append_time = row.log_append_time_ms
                self._outcomes.succeeded(batch)
            elif row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and batch.base_sequence >= 0:
                self._outcomes.succeeded(batch)  # Written long ago: the broker no longer knows where.
            else:
                self._handle_error(batch, row, refused_by_guards(self._queues, batch, rows), now_ms)

    def _handle_error(
        self, batch: Batch, row: PartitionProduceResponse, by_guards: Exception | None, now_ms: int
    ) -> None:
        error: Exception = refusal(row)
        if by_guards is not None and row.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED:
            error = by_guards
        if self._writing is not None:
            error = self._writing.doubted(batch.topic, batch.partition, error)
        if is_retriable(error):
            if row.current_leader.leader_id != NO_NODE:
                self._metadata.leader_moved(
                    batch.topic,
                    batch.partition,
                    row.current_leader.leader_id,
                    row.current_leader.leader_epoch,
                )
            else:
                self._metadata.renew()
        self._outcomes.failed(batch, error, now_ms)
        if batch.expected_offset >= 0:
            self._outcomes.give_up_mismatched(self._queues.queue_of(batch))

    def _follow_ownership(self, writing: Writing) -> None:
        callbacks = writing.callbacks()
        if callbacks:
            self._outcomes.callbacks += callbacks
            self._queues.fatal_error = self._queues.fatal_error or writing.problem()
            self._lock.notify_all()

    # Metadata -----------------------------------------------------------------------------------------

    def _handle_metadata(self, now_ms: int) -> None:
        """Place what waited for a topic to be known; ask for topics, and for leaders that are missing."""
        if self._seen_update != self._metadata.update_count:
            self._seen_update = self._metadata.update_count
            for topic in self._queues.topics.values():
                info = self._metadata.topics.get(topic.topic)
                topic.partition_count = 0 if info is None or topic.unplaced else len(info.partitions)
        for topic in self._queues.waiting:
            self._metadata.want(topic.topic)
            info = self._metadata.topics.get(topic.topic)
            if info is not None:
                self._place(topic, len(info.partitions))
                continue
            error = self._metadata.topic_error(topic.topic)
            self._metadata.renew()
            if error is not None and not error.retriable:
                self._fail_unplaced(topic, error, now_ms)
        for queue in self._queues.busy:
            self._metadata.want(queue.topic)

    def _place(self, topic: TopicQueues, partition_count: int) -> None:
        while topic.unplaced:
            waiting = topic.unplaced[0]
            try:
                partition = self._partitioner(topic.topic, waiting.key, partition_count)
            except Exception as error:  # The application's own code: its message fails, not the others.
                topic.unplaced.popleft()
                self._outcomes.finish(waiting.slip, error)
                continue
            if partition is None:
                partition = without_key(partition_count)
            self._outcomes.callbacks += self._queues.place_first(topic, partition)
        topic.partition_count = partition_count

    def _fail_unplaced(self, topic: TopicQueues, error: Exception, created_before_ms: int) -> None:
        while topic.unplaced and topic.unplaced[0].slip.created_ms <= created_before_ms:
            self._outcomes.finish(topic.unplaced.popleft().slip, error)
        while topic.keyless and topic.keyless[0].created_ms <= created_before_ms:
            self._outcomes.finish(topic.keyless.popleft(), error)

    # Incomplete requests ------------------------------------------------------------------------------

    def _handle_incomplete(self, now_ms: int) -> None:
        """Give up what has waited too long. For what is under way the answer is awaited all the same."""
        too_old_ms = now_ms - self._settings.delivery_timeout_ms
        placed_before_ms = now_ms - min(self._settings.max_block_ms, self._settings.delivery_timeout_ms)
        for topic in self._queues.waiting:
            if topic.topic not in self._metadata.topics:
                error = self._metadata.topic_error(topic.topic) or DeliveryTimeoutError(
                    "; ".join(
                        [
                            f"nothing is known of topic {topic.topic} after {self._settings.max_block_ms} ms",
                            *self._connection.troubles(),
                        ]
                    )
                )
                self._fail_unplaced(topic, error, placed_before_ms)
            while topic.keyless and topic.keyless[0].created_ms <= too_old_ms:
                batch = topic.keyless.popleft()
                self._outcomes.finish(batch, self._outcomes.too_late(batch, None))
        for queue in self._queues.busy:
            self._expire(queue, too_old_ms)

    def _expire(self, queue: PartitionQueue, too_old_ms: int) -> None:
        for batch in queue.in_flight:
            if not batch.is_done and batch.created_ms <= too_old_ms:
                self._outcomes.finish(batch, self._outcomes.too_late(batch, batch.last_error))
        while queue.batches and queue.batches[0].created_ms <= too_old_ms:
            batch = queue.batches.popleft()
            self._outcomes.give_up(queue, batch, self._outcomes.too_late(batch, batch.last_error))

    # Retries and new requests -------------------------------------------------------------------------

    def _handle_new(self, now_ms: int) -> list[tuple[int, list[Batch]]]:
        """Take the batches that are to go now, in requests to brokers; and find out when to look again."""
        requests: list[tuple[int, list[Batch]]] = []
        self._next_turn_ms = now_ms + self._settings.delivery_timeout_ms
        if self._settings.is_idempotent and self._id.id == NO_PRODUCER:
            if self._id.is_due(now_ms):
                self._outbox.append(self._id.call())
                self._next_turn_ms = now_ms
            elif self._id.not_before_ms > now_ms:
                self._look_again(self._id.not_before_ms)
            return requests
        while True:
            taken = self._take_round(now_ms)
            if not taken:
                return requests
            for node in taken:
                self._requests_in_flight[node] = self._requests_in_flight.get(node, 0) + 1
            requests += taken.items()

    def _take_round(self, now_ms: int) -> dict[int, list[Batch]]:
        """The batches for one more request to each broker that takes one: of every partition the first."""
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
                batch = queue.batches[0]
                if batch.expected_offset >= 0 and not self._may_be_judged(queue, node, now_ms):
                    continue
                if requests.has_room(node, batch):  # Else it goes with the next round.
                    requests.add(node, self._take(queue))
        return requests.batches

    def _may_be_judged(self, queue: PartitionQueue, node: int, now_ms: int) -> bool:
        """Whether the broker can judge the condition of the first batch of a partition; else it waits, or is
        given up."""
        batch = queue.batches[0]
        if not self._knows_conditions(node):
            error: Exception | None = UnsupportedRequestError(
                f"broker {node} does not announce {FEATURE}: no message can have an offset there"
            )
        else:
            error = misplaced(batch, node, self._metadata)
        if error is None:
            return True
        if is_retriable(error):
            batch.last_error = error
            self._metadata.renew()
            return False
        self._outcomes.give_up_first(queue, error)
        return self._look_again(now_ms)

    def _knows_conditions(self, node: int) -> bool:
        conversation = self._connection.conversation(node)
        return conversation is not None and FEATURE in conversation.features

    def _may_write(self, queue: PartitionQueue) -> bool:
        return self._writing is None or self._writing.may_send(queue.topic, queue.partition)

    def _can_send_to(self, node: int) -> bool:
        in_flight = self._requests_in_flight.get(node, 0)
        return in_flight < self._settings.max_in_flight and self._connection.is_ready(node)

    def _may_go(self, queue: PartitionQueue, now_ms: int) -> bool:
        """Whether the first batch of a partition may be sent now, by its age and by the order of things."""
        batch = queue.batches[0]
        if batch.retry_at_ms > now_ms:
            return self._look_again(batch.retry_at_ms)
        if not self._is_ripe(batch, now_ms):
            return self._look_again(batch.created_ms + self._settings.linger_ms)
        if not self._settings.is_idempotent:
            # Nothing tells a broker that a batch comes too early: one at a time, or none may fail.
            return not queue.in_flight or self._settings.retries == 0
        if queue.sequences.wants_new_epoch and not queue.in_flight and not self._id.begin_epoch(queue):
            return False
        if batch.base_sequence >= 0:
            return not queue.in_flight or batch.number < queue.in_flight[0].number
        return queue.sequences.can_stamp(self._id.id)

    def _is_ripe(self, batch: Batch, now_ms: int) -> bool:
        return (
            batch.is_closed
            or self.is_flushing > 0
            or self._queues.waiting_for_room > 0
            or now_ms - batch.created_ms >= self._settings.linger_ms
        )

    def _look_again(self, at_ms: int) -> bool:
        self._next_turn_ms = min(self._next_turn_ms, at_ms)
        return False

    def _take(self, queue: PartitionQueue) -> Batch:
        batch = queue.take()
        batch.attempts += 1
        batch.is_unwritten = False
        self.tally.taken(batch, self._queues.topics[batch.topic].batch_size)
        batch.attempt = queue.attempt
        if batch.guards:
            number_guards(self._queues, batch)
        if self._settings.is_idempotent and batch.base_sequence < 0:
            batch.base_sequence = queue.sequences.stamp(len(batch))
        return batch

    def _place_keyless(self, topic: TopicQueues, now_ms: int) -> None:
        """Give ripe batches without a partition one, in turn, whose leader can be sent to at once."""
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
                self._look_again(batch.created_ms + self._settings.linger_ms)
                return
            topic.keyless.popleft()
            batch.is_closed = True
            batch.partition = free[topic.turn % len(free)]
            topic.turn += 1
            queue = topic.queue(batch.partition)
            queue.batches.append(batch)
            self._queues.busy[queue] = None
            free.remove(batch.partition)
