"""The sending loop of a producer, as in the client rewrite, one turn at a time.

    configure any new broker connections
    select; handle responses; write
    handle topic metadata
    handle incomplete requests
    handle retries
    handle new requests

One thread runs it, and only that thread uses the connection. With the threads that call `send` it shares the
queues, under their lock. It encodes, compresses and calls back outside the lock. `clients.sending.departures`
chooses the batches to send, `clients.sending.outcomes` decides their outcomes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import ConnectionFailedError, DeliveryTimeoutError, is_retriable
from holdfast_log.clients.fence import FENCES_FEATURE, OwnerFence
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.conditions import refusal, refused_by_guards
from holdfast_log.clients.sending.departures import Departures
from holdfast_log.clients.sending.outcomes import Outcomes
from holdfast_log.clients.sending.partitioner import Partitioner
from holdfast_log.clients.sending.producer_id import NO_PRODUCER, ProducerId
from holdfast_log.clients.sending.queues import (
    PartitionQueue,
    Queues,
    TopicQueues,
    keyless_partition_of,
    unplaceable,
)
from holdfast_log.clients.sending.requests import encode, produce_request
from holdfast_log.clients.sending.settings import SenderSettings
from holdfast_log.clients.sending.tally import SendingTally
from holdfast_log.clients.sending.write_access import WriteAccess
from holdfast_log.protocol.errors import BrokerError, ErrorCode, UnknownTopicOrPartitionError
from holdfast_log.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from holdfast_log.clients.sending.transaction_port import TransactionPort

_UNREACHED_LOOK_MS = 1000
"""How often to look for records that have waited too long, while no broker has ever answered."""


class Sender:
    """Sends the batches in the queues until each has its outcome. Only the sending thread may call it."""

    def __init__(
        self,
        queues: Queues,
        connection: Connection,
        settings: SenderSettings,
        partitioner: Partitioner,
        access: WriteAccess | None = None,
        fence: OwnerFence | None = None,
        transactions: TransactionPort | None = None,
    ) -> None:
        self.tally = SendingTally(connection.events)
        self._queues = queues
        self._lock = queues.lock
        self._connection = connection
        self._metadata = connection.metadata
        self._network = connection.network
        self._settings = settings
        self._partitioner = partitioner
        self._access = access
        self._fence = fence
        self._transactions = transactions
        self._id = ProducerId(settings.retry_backoff_ms) if transactions is None else transactions.producer_id
        self._outcomes = Outcomes(queues, settings, self.tally, transactions)
        self._departures = Departures(
            queues, connection, settings, self._id, self._outcomes, self.tally, access, fence, transactions
        )
        self._seen_update = 0
        self._oldest_ms = 0
        """When the oldest message without an outcome was sent by the application; now, if there is none."""
        self._outbox: list[Call] = []

    # One turn of the loop -----------------------------------------------------------------------------

    def turn(self, max_wait_ms: int) -> None:
        """Send and receive what is ready; waits at most `max_wait_ms` for something to happen."""
        now_ms = self._network.now_ms()
        wait_ms = min(max_wait_ms, max(0, self._departures.look_at_ms - now_ms))
        calls, self._outbox = self._outbox, []
        # Taken once for both, because `send` needs the lock for every message.
        with self._lock:
            leaders = self._wanted_leaders()
            if self._access is not None:
                claims, due_ms = self._access.calls(now_ms)
                calls += claims
                wait_ms = wait_ms if due_ms is None else max(0, min(wait_ms, due_ms - now_ms))
            if self._transactions is not None:
                of_transaction, due_ms = self._transactions.calls(now_ms)
                calls += of_transaction
                wait_ms = wait_ms if due_ms is None else max(0, min(wait_ms, due_ms - now_ms))
        for node in leaders:
            self._connection.open(node)
        replies = self._connection.poll(wait_ms, *calls)
        now_ms = self._network.now_ms()
        with self._lock:
            for reply in replies:
                self._handle_reply(reply, now_ms)
            if self._access is not None:
                self._follow_ownership(self._access)
            if self._transactions is not None:
                self._follow_transaction(self._transactions)
            self._queues.forget_idle()
            self._handle_metadata(now_ms)
            self._handle_incomplete(now_ms)
            taken = self._handle_new(now_ms)
            self._queues.look_at_ms = self._departures.look_at_ms
        for node, batches in taken:
            call = self._produce_call(node, batches, now_ms)
            if call is not None:
                self._outbox.append(call)
        self._outcomes.call_back()
        self._connection.events.tell()

    def _produce_call(self, node: int, batches: list[Batch], now_ms: int) -> Call | None:
        """The call that sends these batches; None if none of them can be encoded.

        `send` checks what a message holds. Should something pass all the same, it fails its own batch:
        nothing in a message may stop the sending.
        """
        sound: list[Batch] = []
        for batch in batches:
            try:
                sequences = self._queues.queue_of(batch).sequences
                encode(batch, sequences, is_transactional=self._transactions is not None)
            except Exception as error:
                self._give_up_unsendable([batch], error)
            else:
                sound.append(batch)
        try:
            request = produce_request(
                sound,
                self._settings.acks,
                self._settings.request_timeout_ms,
                tells_offsets=self._departures.knows_conditions(node),
                fence=self._fence,
                transactional_id=None if self._transactions is None else self._transactions.transactional_id,
            )
        except Exception as error:
            self._give_up_unsendable(sound, error)
            sound = []
        if not sound:
            with self._lock:
                self._departures.requests_in_flight[node] -= 1
                self._departures.look_again(now_ms)
                self._queues.look_at_ms = self._departures.look_at_ms
            return None
        expects_response = self._settings.acks != 0
        needs = None if self._fence is None else FENCES_FEATURE
        return Call(node, request, tag=sound, expects_response=expects_response, needs=needs)

    def _give_up_unsendable(self, batches: list[Batch], error: Exception) -> None:
        with self._lock:
            for batch in batches:
                self._outcomes.give_up_unsendable(batch, error)

    def fail_all(self, error: Exception) -> None:
        """Give up every batch that waits or is under way."""
        with self._lock:
            self._queues.fatal_error = self._queues.fatal_error or error
            for topic in self._queues.topics.values():
                self._fail_placeless(topic, error)
                topic.set_partition_count(0)
                for queue in topic.partitions.values():
                    for batch in (*queue.in_flight, *queue.batches):
                        self._outcomes.finish(batch, error)
                    queue.batches.clear()
                    queue.in_flight.clear()
            self._lock.notify_all()
        self._outcomes.call_back()
        self._connection.events.tell()

    def _fail_placeless(self, topic: TopicQueues, error: Exception) -> None:
        """Give up what waits for a partition."""
        for waiting in topic.unplaced:
            self._outcomes.finish(waiting.batch, error)
        topic.unplaced.clear()
        for batch in topic.keyless:
            self._outcomes.finish(batch, error)
        topic.keyless.clear()

    def _wanted_leaders(self) -> list[int]:
        """The leaders of partitions with waiting batches, to which connections are needed."""
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
        return [node for node in leaders if node != NO_NODE]

    # Responses ----------------------------------------------------------------------------------------

    def _handle_reply(self, reply: Reply, now_ms: int) -> None:
        if not isinstance(reply.call.request, ProduceRequest):
            if self._access is not None and self._access.handle(reply, now_ms):
                return
            if self._transactions is not None and self._transactions.handle(reply, now_ms):
                return
            if self._id.owns(reply):
                error = self._id.handle(reply, now_ms)
                self._queues.fatal_error = self._queues.fatal_error or error
            return
        self._departures.requests_in_flight[reply.call.node] -= 1
        batches: list[Batch] = reply.call.tag
        if reply.error is not None:
            self._metadata.doubt(reply.call.node)
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
                batch.is_repeat = row.is_repeat
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
        if self._access is not None:
            error = self._access.judged(batch.topic, batch.partition, error)
        if self._fence is not None and row.error_code == ErrorCode.OWNERSHIP_DETACHED:
            error = ConnectionFailedError(str(error))  # The owner may resume: to be sent again.
        if is_retriable(error):
            if row.current_leader.leader_id != NO_NODE:
                self._metadata.leader_moved(
                    batch.topic,
                    batch.partition,
                    row.current_leader.leader_id,
                    row.current_leader.leader_epoch,
                )
            else:
                self._metadata.doubt_leader(batch.topic, batch.partition)
        self._outcomes.failed(batch, error, now_ms)
        if batch.expected_offset >= 0:
            self._outcomes.give_up_mismatched(self._queues.queue_of(batch))

    def _follow_ownership(self, access: WriteAccess) -> None:
        callbacks = access.callbacks()
        if callbacks:
            self._outcomes.callbacks += callbacks
            self._queues.fatal_error = self._queues.fatal_error or access.problem()
        if access.has_changed() or callbacks:
            self._lock.notify_all()

    def _follow_transaction(self, transactions: TransactionPort) -> None:
        """Give up what waits if the transaction is to be aborted. What is under way still gets its answer."""
        abandoned = transactions.abandons()
        if abandoned is not None:
            for topic in self._queues.waiting:
                self._fail_placeless(topic, abandoned)
            for queue in self._queues.busy:
                while queue.batches:
                    self._outcomes.give_up(queue, queue.batches.popleft(), abandoned)
        self._queues.fatal_error = self._queues.fatal_error or transactions.problem()
        if transactions.has_changed():
            self._lock.notify_all()

    # Metadata -----------------------------------------------------------------------------------------

    def _handle_metadata(self, now_ms: int) -> None:
        """Place records whose topic is known by now; request unknown topics and leaders."""
        if self._seen_update != self._metadata.update_count:
            self._seen_update = self._metadata.update_count
            for topic in self._queues.topics.values():
                info = self._metadata.topics.get(topic.topic)
                topic.set_partition_count(0 if info is None or topic.unplaced else len(info.partitions))
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
            info = self._metadata.topics.get(queue.topic)
            if info is not None and queue.partition >= len(info.partitions):
                self._fail_nonexistent(queue, len(info.partitions))

    def _fail_nonexistent(self, queue: PartitionQueue, count: int) -> None:
        """Give up what is for a partition that the topic did not have after the records were queued."""
        error = UnknownTopicOrPartitionError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {queue.topic} has no partition {queue.partition}: it has {count}, numbered from 0",
        )
        while queue.batches and queue.batches[0].created_ms < self._metadata.asked_at_ms:
            self._outcomes.give_up(queue, queue.batches.popleft(), error)
        if queue.batches:
            self._metadata.renew()

    def _place(self, topic: TopicQueues, partition_count: int) -> None:
        while topic.unplaced:
            waiting = topic.unplaced[0]
            try:
                partition = self._partitioner(topic.topic, waiting.record[1], partition_count)
                if partition is not None:
                    topic.queue(partition)
                elif waiting.expected is not None and partition_count > 1:
                    raise unplaceable(topic.topic)
            except Exception as error:  # The partitioner is the application's: only its message fails.
                topic.unplaced.popleft()
                self._outcomes.finish(waiting.batch, error)
                continue
            if partition is None:
                partition = keyless_partition_of(partition_count)
            self._outcomes.callbacks += self._queues.place_first(topic, partition)
        topic.set_partition_count(partition_count)

    def _fail_unplaced(self, topic: TopicQueues, error: Exception, created_before_ms: int) -> None:
        while topic.unplaced and topic.unplaced[0].batch.created_ms <= created_before_ms:
            self._outcomes.finish(topic.unplaced.popleft().batch, error)
        while topic.keyless and topic.keyless[0].created_ms <= created_before_ms:
            self._outcomes.finish(topic.keyless.popleft(), error)

    # Incomplete requests ------------------------------------------------------------------------------

    def _handle_incomplete(self, now_ms: int) -> None:
        """Give up what has waited too long. The answer to a batch under way is still awaited. Notes when the
        oldest of the others was created: nothing else may happen before it is too old."""
        self._oldest_ms = now_ms
        unreached = self._connection.unreachable(now_ms)
        if unreached is not None:
            self._fail_unreached(unreached, now_ms - self._settings.bootstrap_timeout_ms)
        too_old_ms = now_ms - self._settings.delivery_timeout_ms
        placed_before_ms = now_ms - min(self._settings.max_block_ms, self._settings.delivery_timeout_ms)
        for topic in self._queues.waiting:
            if topic.topic not in self._metadata.topics:
                error = self._metadata.topic_error(topic.topic) or DeliveryTimeoutError(
                    "; ".join(
                        [
                            f"no broker described topic {topic.topic} for {self._settings.max_block_ms} ms",
                            *self._connection.troubles(),
                        ]
                    )
                )
                self._fail_unplaced(topic, error, placed_before_ms)
            while topic.keyless and topic.keyless[0].created_ms <= too_old_ms:
                batch = topic.keyless.popleft()
                self._outcomes.finish(batch, self._outcomes.too_late(batch, None))
            if topic.keyless:
                self._oldest_ms = min(self._oldest_ms, topic.keyless[0].created_ms)
        for queue in self._queues.busy:
            self._expire(queue, too_old_ms)

    def _fail_unreached(self, error: Exception, created_before_ms: int) -> None:
        """Give up what has waited for `bootstrap.timeout.ms`, because no broker has ever answered."""
        for topic in self._queues.waiting:
            self._fail_unplaced(topic, error, created_before_ms)
        for queue in self._queues.busy:
            while queue.batches and queue.batches[0].created_ms <= created_before_ms:
                self._outcomes.give_up(queue, queue.batches.popleft(), error)

    def _expire(self, queue: PartitionQueue, too_old_ms: int) -> None:
        for batch in queue.in_flight:
            if batch.is_done:
                continue
            if batch.created_ms > too_old_ms:
                self._oldest_ms = min(self._oldest_ms, batch.created_ms)
                continue
            self._outcomes.finish(batch, self._outcomes.too_late(batch, batch.last_error))
        while queue.batches and queue.batches[0].created_ms <= too_old_ms:
            batch = queue.batches.popleft()
            self._outcomes.give_up(queue, batch, self._outcomes.too_late(batch, batch.last_error))
        if queue.batches:
            self._oldest_ms = min(self._oldest_ms, queue.batches[0].created_ms)

    # Retries and new requests -------------------------------------------------------------------------

    def _handle_new(self, now_ms: int) -> list[tuple[int, list[Batch]]]:
        """Take the batches to send now, by request and broker; also decides when to look again."""
        departures = self._departures
        departures.look_at_ms = self._oldest_ms + self._settings.delivery_timeout_ms
        if not self._metadata.update_count:
            departures.look_again(now_ms + _UNREACHED_LOOK_MS)
        if self._settings.is_idempotent and self._id.id == NO_PRODUCER:
            if self._id.is_due(now_ms):
                self._outbox.append(self._id.call())
                departures.look_again(now_ms)
            elif self._id.not_before_ms > now_ms:
                departures.look_again(self._id.not_before_ms)
            return []
        return departures.choose(now_ms)
