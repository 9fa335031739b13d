"""The id under which brokers know a producer (KIP-98): requested when it is first needed, and again when its
epochs are used up."""

from __future__ import annotations

from holdfast_log.clients.connection.connection import ANY_NODE
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import UnsupportedRequestError, is_retriable
from holdfast_log.clients.sending.queues import PartitionQueue
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast_log.protocol.records import set_producer

NO_PRODUCER = -1


class ProducerId:
    """The id, and the request for it."""

    def __init__(self, retry_backoff_ms: int) -> None:
        self.id = NO_PRODUCER
        self.epoch = 0
        """The epoch with which each partition begins."""
        self.not_before_ms = 0
        """When the id may be requested again after a failure."""
        self._retry_backoff_ms = retry_backoff_ms
        self._request: Call | None = None

    def is_due(self, now_ms: int) -> bool:
        """Whether to request the id now."""
        return self.id == NO_PRODUCER and self._request is None and now_ms >= self.not_before_ms

    def call(self) -> Call:
        """The request for an id; it counts as sent from here on."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        self._request = Call(ANY_NODE, request)
        return self._request

    def owns(self, reply: Reply) -> bool:
        """Whether a reply answers that request."""
        return reply.call is self._request

    def forget(self) -> None:
        """Drop the id, so that another one is requested."""
        self.id = NO_PRODUCER

    def handle(self, reply: Reply, now_ms: int) -> Exception | None:
        """Process the reply. Returns the error if there will never be an id."""
        self._request = None
        error = reply.error
        if isinstance(reply.response, InitProducerIdResponse):
            if reply.response.error_code == ErrorCode.NONE:
                self.id = reply.response.producer_id
                return None
            error = error_for(reply.response.error_code)
        self.not_before_ms = now_ms + self._retry_backoff_ms
        if isinstance(error, UnsupportedRequestError):
            return UnsupportedRequestError(f"{error}; enable.idempotence=false sends without a producer id")
        return None if error is None or is_retriable(error) else error

    def begin_epoch(self, queue: PartitionQueue) -> bool:
        """Restart the sequence numbers of a partition, and renumber its waiting batches.

        Returns False if that needs another id first.
        """
        sequences = queue.sequences
        if sequences.is_exhausted and sequences.producer_id == self.id:
            self.forget()
            return False
        epoch = sequences.epoch + 1 if sequences.producer_id == self.id else 0
        stamped = [batch for batch in queue.batches if batch.base_sequence >= 0]
        sequences.begin(self.id, epoch)
        sequences.outstanding = 0
        for batch in stamped:
            batch.base_sequence = sequences.stamp(len(batch))
            if batch.encoded is not None:
                set_producer(batch.encoded, sequences.producer_id, sequences.epoch, batch.base_sequence)
        return True
