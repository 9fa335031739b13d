"""What a transactional producer asks of coordinators, and when. Sans-IO: replies in, calls out.

One request to a coordinator is under way at a time, since each depends on the answers before it. The order
within a transaction is that of KIP-98: partitions and groups are added before anything is written to them,
and the end is asked for once every record has its outcome. With transaction.version 2 leaders and group
coordinators add them (KIP-890), and nothing is asked before; what each of these brokers announces decides.

A failure of a record or an offset leaves one way: to abort (KIP-360). If numbers of records were lost with
it, a record under way could still arrive and fill the gap of a later one. So the coordinator gives a new
epoch after the abort, and leaders refuse the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holdfast_log.clients.connection.backoff import Backoff
from holdfast_log.clients.connection.cluster_view import NO_NODE, Metadata
from holdfast_log.clients.connection.connection import ANY_NODE
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import (
    CommitUnknownError,
    TransactionAbortedError,
    TransactionStateError,
    is_retriable,
)
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.groups.coordinator import (
    GROUP_KEY_TYPE,
    TRANSACTION_KEY_TYPE,
    coordinator_in,
    find_coordinator_request,
)
from holdfast_log.clients.groups.membership import GroupIdentity
from holdfast_log.clients.message import OffsetAndMetadata
from holdfast_log.clients.sending.producer_id import NO_PRODUCER, ProducerId
from holdfast_log.clients.sending.queues import PartitionQueue, Queues
from holdfast_log.clients.transactions.requests import (
    OffsetsInTransaction,
    TransactionalName,
    TransactionStep,
    add_partitions_request,
    commit_offsets_request,
    dooms,
    explained,
    moves_coordinator,
    raise_refusal,
    timed_out,
)
from holdfast_log.clients.transactions.states import TransactionalEvent, TransactionalState, after
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from holdfast_log.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from holdfast_log.protocol.messages.end_txn import (
    EndTxnRequest,
    EndTxnResponse,
    PartitionOwnedInTransaction,
)
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorResponse
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast_log.protocol.topic_partition import TopicPartition

OWNED_FEATURE = "holdfast.owned.transactions"
_E, _S, _Step = TransactionalEvent, TransactionalState, TransactionStep
_UNKNOWN_NODE = -1
_SOON_MS = 5
"""The first pause while the coordinator ends the transaction before: the markers of a few partitions take
about as long. Doubled each time up to `retry.backoff.ms`."""
_METADATA_MS = 20
"""How long to wait for the address of a coordinator that is not in the metadata yet."""


class TransactionalProducerId(ProducerId):
    """The id and epoch that the coordinator has given, the same for all partitions."""

    def is_due(self, now_ms: int) -> bool:
        return False  # The machine asks.

    def begin_epoch(self, queue: PartitionQueue) -> bool:
        sequences = queue.sequences
        if (sequences.producer_id, sequences.epoch) == (self.id, self.epoch):
            return False  # The coordinator gives the next one, once the transaction has been aborted.
        sequences.begin(self.id, self.epoch)
        sequences.is_known = False
        return True


class TransactionMachine:
    """The transactions of one producer, one after the other. The producer's lock must be held for every
    call."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        queues: Queues,
        metadata: Metadata,
        backoff: Backoff,
        retry_backoff_ms: int,
        fence: OwnerFence | None = None,
        adds_itself: Callable[[int], bool | None] = lambda node: False,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id: ProducerId = TransactionalProducerId(retry_backoff_ms)
        self.state = _S.UNINITIALIZED
        self.reason: Exception | None = None
        """In ABORTABLE_ERROR why the transaction cannot be committed, in FATAL_ERROR why nothing can."""
        self.last_error: Exception | None = None
        """Why the last request has to be repeated."""
        self.number = 0
        """Counts transactions."""
        self.committed = 0
        """The number of the last one that was committed."""
        self.aborts_itself = False
        """Whether a transaction that fails is aborted at once, because nobody waits for its end."""
        self._timeout_ms = timeout_ms
        self._queues = queues
        self._metadata = metadata
        self._backoff = backoff
        self._retry_backoff_ms = retry_backoff_ms
        self._fence = fence
        self._adds_itself = adds_itself
        """Whether a broker adds what is written to it to the transaction; None while that is not known."""
        self._added: set[TopicPartition] = set()
        self._led: set[TopicPartition] = set()
        """Partitions whose leaders add them."""
        self._wanted: dict[TopicPartition, None] = {}
        self._groups: set[str] = set()
        self._offsets: list[OffsetsInTransaction] = []
        self._nodes: dict[str | None, int] = {}
        """The coordinators: of the transactional id under None, of groups under their ids."""
        self._call: Call | None = None
        self._step = _Step.FIND
        self._not_before_ms = 0
        self._failures = 0
        self._is_end_asked = False
        """Whether the end of the open transaction was asked for."""
        self._is_commit_told = False
        """Whether a request to commit may have reached the coordinator."""
        self._is_adding_uncertain = False
        """Whether the coordinator may have added something, and so have a transaction open, without having
        said so."""
        self._has_changed = False
        self._bar()

    # The application ----------------------------------------------------------------------------------

    def happen(self, event: TransactionalEvent) -> bool:
        """Take a step of the table. False, and nothing happens, if the state refuses the event."""
        state = after(self.state, event)
        if state is None:
            return False
        if state is not self.state:
            self.state = state
            self._has_changed = True
            self._bar()
        return True

    def begin(self) -> None:
        """A transaction begins; the producer must be READY."""
        assert self.happen(_E.BEGIN)
        self.number += 1
        self.reason = None
        self._is_adding_uncertain = self._is_end_asked = self._is_commit_told = False
        self.aborts_itself = False
        self._added.clear()
        self._led.clear()
        self._wanted.clear()
        self._groups.clear()
        self._bar()

    def add_offsets(
        self, group: GroupIdentity, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetsInTransaction:
        """Offsets of a group become part of the open transaction."""
        task = OffsetsInTransaction(group, offsets)
        self._offsets.append(task)
        return task

    @property
    def outcome_is_unknown(self) -> bool:
        """Whether the coordinator was told to commit and has not answered."""
        return self._is_commit_told

    def _bar(self) -> None:
        """Let records be queued while a transaction is open, and only then."""
        self._queues.barrier = None if self.state is _S.IN_TRANSACTION else partial(self.refusal, "send()")

    def refusal(self, call: str) -> Exception:
        """Why a call is not possible in this state."""
        advice = {
            _S.ABORTABLE_ERROR: ": call abort() first",
            _S.IN_TRANSACTION: ": commit() or abort() it first",
            _S.FATAL_ERROR: f": {self.reason}",
        }.get(self.state, ": a producer with a transactional.id sends between transaction() and commit()")
        error = TransactionStateError(
            f"{call}: the producer with transactional.id={self.transactional_id} {self.state.value}{advice}"
        )
        error.__cause__ = self.reason
        return error

    # The sending loop ---------------------------------------------------------------------------------

    def may_send(self, topic: str, partition: int) -> bool:
        place = TopicPartition(topic, partition)
        if place in self._added:
            return True
        leader = self._metadata.leader(topic, partition)
        adds = self._adds_itself(leader)
        if adds or (adds is None and place in self._led):
            self._led.add(place)
            self._is_adding_uncertain = True
            return True
        if adds is None and self._adds_itself(self._nodes.get(None, _UNKNOWN_NODE)):
            if leader == NO_NODE:
                self._metadata.renew()
            return False  # The connection to the leader is on its way, and it probably adds.
        self._wanted[place] = None
        return False

    def failed(self, error: Exception) -> None:
        if not self._is_end_asked:  # Else all records have their outcome, and this one came too late.
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self.reason is None:
            self.reason = error
        self.happen(_E.FAILED)
        if self.aborts_itself and self.state is _S.ABORTABLE_ERROR:
            self.happen(_E.ABORT)

    def abandons(self) -> Exception | None:
        if self.state is _S.ABORTABLE_ERROR:
            return TransactionAbortedError(f"the transaction has to be aborted: {self.reason}")
        if self.state is _S.ABORTING:
            return TransactionAbortedError("the transaction was aborted before the message was acknowledged")
        return None

    def has_changed(self) -> bool:
        changed, self._has_changed = self._has_changed, False
        return changed

    def problem(self) -> Exception | None:
        return self.reason if self.state is _S.FATAL_ERROR else None

    def calls(self, now_ms: int) -> tuple[list[Call], int | None]:
        if self._call is not None or self.state is _S.FATAL_ERROR:
            return [], None
        step = self._next_step()
        if step is None:
            # Threads that wait for what has just happened look again at the end of this turn.
            return [], now_ms if self._has_changed else None
        if now_ms < self._not_before_ms:
            return [], self._not_before_ms
        group = self._offsets[0].group.group_id if step is _Step.COMMIT_OFFSETS else None
        node = self._nodes.get(group, _UNKNOWN_NODE)
        if node not in self._metadata.nodes:
            if node != _UNKNOWN_NODE:
                self._metadata.renew()
            step = _Step.FIND if group is None else _Step.FIND_GROUP
            node = ANY_NODE
        self._step = step
        request = self._request(step)
        needs = OWNED_FEATURE if isinstance(request, EndTxnRequest) and request.owned else None
        self._call = Call(node, request, needs=needs)
        self._is_end_asked = self._is_end_asked or step is _Step.END
        if step is _Step.COMMIT_OFFSETS and group not in self._groups:
            self._is_adding_uncertain = True  # The group is added, whatever becomes of its offsets.
        return [self._call], None

    def _next_step(self) -> TransactionStep | None:
        """What to ask next; None if nothing. May end the transaction, if there is nothing to ask for that."""
        if self.state is _S.INITIALIZING:
            return _Step.INIT
        if self.state in (_S.IN_TRANSACTION, _S.COMMITTING):
            if self._wanted:
                return _Step.ADD_PARTITIONS
            if self._offsets:
                return _Step.COMMIT_OFFSETS if self._has_group() else _Step.ADD_GROUP
        if self.state not in (_S.COMMITTING, _S.ABORTING) or self._queues.pending():
            return None
        if self._is_adding_uncertain or self._is_known_open:
            return _Step.END
        return _Step.INIT if self._end() is _S.INITIALIZING else None

    def _has_group(self) -> bool:
        """Whether nothing has to be asked before the next offsets: their group is part of the transaction, or
        its coordinator, which may have to be found first, adds it."""
        group = self._offsets[0].group.group_id
        if group in self._groups:
            return True
        node = self._nodes.get(group)
        return bool(self._adds_itself(self._nodes.get(None, _UNKNOWN_NODE) if node is None else node))

    @property
    def _is_known_open(self) -> bool:
        # Before a commit every record is acknowledged, so leaders have added what they were to add.
        is_led = self.state is _S.COMMITTING and bool(self._led)
        return is_led or bool(self._added or self._groups)

    def _request(self, step: TransactionStep) -> Request[Any]:
        name = TransactionalName(self.transactional_id, self.producer_id.id, self.producer_id.epoch)
        if step is _Step.FIND:
            return find_coordinator_request(self.transactional_id, TRANSACTION_KEY_TYPE)
        if step is _Step.FIND_GROUP:
            return find_coordinator_request(self._offsets[0].group.group_id, GROUP_KEY_TYPE)
        if step is _Step.INIT:
            return InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=name.producer_id,
                producer_epoch=-1 if name.producer_id == NO_PRODUCER else name.epoch,
            )
        if step is _Step.ADD_PARTITIONS:
            return add_partitions_request(name, self._wanted)
        if step is _Step.ADD_GROUP:
            return AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=name.producer_id,
                producer_epoch=name.epoch,
                group_id=self._offsets[0].group.group_id,
            )
        if step is _Step.COMMIT_OFFSETS:
            return commit_offsets_request(name, self._offsets[0].group, self._offsets[0].offsets)
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=name.producer_id,
            producer_epoch=name.epoch,
            committed=self.state is _S.COMMITTING,
            owned=[
                PartitionOwnedInTransaction(
                    topic=place.topic, partition=place.partition, owner_token=self._fence.token(place)
                )
                for place in sorted(self._added | self._led)
                if self._fence is not None and self.state is _S.COMMITTING
            ],
        )

    # Replies ------------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        if reply.call is not self._call:
            return False
        self._call = None
        self._has_changed = True
        if self.state is _S.FATAL_ERROR:
            return True
        try:
            if reply.error is not None:
                raise reply.error
            raise_refusal(reply.response)
        except Exception as error:
            self._refused(reply, error, now_ms)
        else:
            self._failures, self._not_before_ms, self.last_error = 0, 0, None
            self._done(reply, now_ms)
        return True

    def _done(self, reply: Reply, now_ms: int) -> None:
        """The last step has been carried out."""
        request, response = reply.call.request, reply.response
        if isinstance(response, FindCoordinatorResponse):
            group = (
                self._offsets[0].group.group_id if self._step is _Step.FIND_GROUP and self._offsets else None
            )
            if self._step is _Step.FIND or group is not None:
                self._nodes[group] = coordinator_in(response).node
                if self._nodes[group] not in self._metadata.nodes:
                    self._metadata.renew()
                    self._not_before_ms = now_ms + _METADATA_MS
        elif isinstance(response, InitProducerIdResponse):
            self.producer_id.id, self.producer_id.epoch = response.producer_id, response.producer_epoch
            self.happen(_E.NAMED)
        elif isinstance(request, AddPartitionsToTxnRequest):
            for topic in request.v3_and_below_topics:
                for number in topic.partitions:
                    self._wanted.pop(TopicPartition(topic.name, number), None)
                    self._added.add(TopicPartition(topic.name, number))
        elif isinstance(request, AddOffsetsToTxnRequest):
            self._groups.add(request.group_id)
        elif self._step is _Step.COMMIT_OFFSETS and self._offsets:
            self._groups.add(self._offsets[0].group.group_id)
            self._offsets.pop(0).is_done = True
        elif isinstance(response, EndTxnResponse):
            if response.producer_id != NO_PRODUCER:  # From transaction.version 2 on (KIP-890).
                self.producer_id.id, self.producer_id.epoch = response.producer_id, response.producer_epoch
            self._end()

    def _end(self, *, is_epoch_over: bool = False) -> TransactionalState:
        """The transaction has ended; the state after that. `is_epoch_over`: something of it may still arrive
        at the coordinator."""
        self._is_commit_told = False
        if self.state is _S.COMMITTING:
            self.committed = self.number
        self._wanted.clear()
        self._give_up_offsets(TransactionAbortedError("the transaction has ended"))
        has_gaps = is_epoch_over or any(
            queue.sequences.wants_new_epoch
            for topic in self._queues.topics.values()
            for queue in topic.partitions.values()
            if (queue.sequences.producer_id, queue.sequences.epoch)
            == (self.producer_id.id, self.producer_id.epoch)
        )
        self.happen(_E.ENDED_WITH_GAPS if has_gaps else _E.ENDED)
        return self.state

    def _refused(self, reply: Reply, error: Exception, now_ms: int) -> None:
        is_uncertain = _is_uncertain(reply, error)
        if self._step is _Step.END and self.state is _S.COMMITTING:
            self._is_commit_told = self._is_commit_told or is_uncertain
        if self._step in (_Step.ADD_PARTITIONS, _Step.ADD_GROUP):
            self._is_adding_uncertain = self._is_adding_uncertain or is_uncertain
        if self._step is _Step.END and _is_none_open(error) and not self._is_known_open:
            self._end(is_epoch_over=True)  # What was added without an answer has not arrived.
            return
        if self._is_commit_told and not is_retriable(error):
            self._doom(explained(error, self.transactional_id, self._timeout_ms))  # It may be committed.
            return
        if is_retriable(error):
            self._repeat(error, now_ms)
        elif self._step is _Step.END and self.state is _S.COMMITTING and _is_none_open(error):
            self._leave_only_abort(timed_out(self.transactional_id, self._timeout_ms))
        elif dooms(self._step, error):
            self._doom(explained(error, self.transactional_id, self._timeout_ms))
        elif self._step is not _Step.END or self.state is _S.COMMITTING:
            self._leave_only_abort(error)
        else:
            self._doom(error)

    def _leave_only_abort(self, error: Exception) -> None:
        """Nothing of the transaction counts, and all that is left is to abort it."""
        self._give_up_offsets(error)
        self._wanted.clear()
        self._is_end_asked = False
        self._fail(error)

    def _repeat(self, error: Exception, now_ms: int) -> None:
        self.last_error = error
        self._failures += 1
        if moves_coordinator(error) and self._step not in (_Step.FIND, _Step.FIND_GROUP):
            group = None
            if self._step is _Step.COMMIT_OFFSETS and self._offsets:
                group = self._offsets[0].group.group_id
            self._metadata.doubt(self._nodes.pop(group, _UNKNOWN_NODE))
        if isinstance(error, BrokerError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_ms = min(_SOON_MS << min(self._failures - 1, 16), self._retry_backoff_ms)
        else:
            pause_ms = self._backoff.after(self._failures)
        self._not_before_ms = now_ms + pause_ms

    def _doom(self, error: Exception) -> None:
        self.reason = error
        self._give_up_offsets(error)
        self.happen(_E.DOOMED)

    def _give_up_offsets(self, error: Exception) -> None:
        for task in self._offsets:
            task.is_done, task.error = True, error
        self._offsets.clear()

    # For errors ---------------------------------------------------------------------------------------

    def waits_for(self) -> str:
        """What the producer is doing, in words."""
        if self._call is None and self.state in (_S.COMMITTING, _S.ABORTING) and self._queues.pending():
            return "it waits for the outcome of its messages"
        return f"it {self._step.value}"

    def commit_unknown(self, why: Exception | None) -> CommitUnknownError:
        """The error of a commit without an answer."""
        error = CommitUnknownError(
            f"whether the transaction of transactional.id={self.transactional_id} was committed is not known"
            + ("" if why is None else f": {why}")
        )
        error.__cause__ = why
        return error


def _is_none_open(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code is ErrorCode.INVALID_TXN_STATE


def _is_uncertain(reply: Reply, error: Exception) -> bool:
    """Whether the coordinator may have carried out the request all the same."""
    if not isinstance(error, BrokerError):
        return reply.was_sent
    return error.code in (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    )
