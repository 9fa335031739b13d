"""Simulated applications that must write each payment once, with append ids, although their processes crash.

An application notes a payment before it sends it: its id, and where it knew the log to end when the id was
made. The notes outlive the process; its producer id and what it knew of the log do not. It follows the recipe
of docs/ownership.md: after OFFSET_MISMATCH it sends the payment again with the same id at the offset where
the log ends. After APPEND_ID_UNKNOWN it reads the part of the log that the broker does not remember. Some
requests leave out where the id can be: then a broker that has forgotten any id must refuse them.

Whatever happens, each payment is in the log at most once, and a broker never says of one that it has
acknowledged that it is not there.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
)
from holdfast_log.protocol.records import APPEND_ID_HEADER, APPEND_ID_SIZE, BatchBuilder
from tests.sim.client import PASSING, Surroundings
from tests.sim.history import Batch, Incarnation, Outcome, TopicPartition
from tests.sim.partition_client import PartitionClient

_PAUSE_S = 0.12
_CRASH_SHARE = 0.06
_NEW_SHARE = 0.5
"""The share of requests for a new payment. The others repeat one that was sent before."""
_SETTLED_SHARE = 0.4
"""The share of repetitions of a payment whose outcome is known: as by a process that lost its last notes."""
_SILENT_SHARE = 0.2
"""The share of requests that do not say where the id can be."""
_FALSE_SHARE = 0.1
"""The share of repetitions of an acknowledged payment with another amount."""
_LOST_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


@dataclass(eq=False, slots=True)
class _Note:
    """A payment. The log has none with its id before `unused_before`. It is next sent for `expected`."""

    batch: Batch
    append_id: bytes
    unused_before: int
    expected: int


class Payer(PartitionClient):
    """One application."""

    def __init__(
        self, around: Surroundings, name: str, at: TopicPartition, *, remembers_all: bool = False
    ) -> None:
        super().__init__(around, name, at, _PAUSE_S)
        self._remembers_all = remembers_all
        """Whether brokers must know every id, because nothing makes them forget any."""
        self._notes: list[_Note] = []
        self._end = 0
        """Where this process knows the log to have ended."""
        self._producer: tuple[int, int] | None = None
        self._sequence = 0

    def act(self, address: Address) -> None:
        if self.rng.random() < _CRASH_SHARE:
            self._crash()
        if self._producer is None:
            self._identify()
        else:
            self._pay(address)

    def _crash(self) -> None:
        self._producer = None
        self._end = 0

    def _identify(self) -> None:
        def identified(response: InitProducerIdResponse) -> None:
            if response.error_code == ErrorCode.NONE:
                self._producer = (response.producer_id, response.producer_epoch)
                self._sequence = 0

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self.ask(self.anyone(), request, identified, version=4)

    # Paying

    def _pay(self, address: Address) -> None:
        note = self._chosen()
        is_false = note.batch.outcome is Outcome.ACKED and self.rng.random() < _FALSE_SHARE
        values = [b"false " + value for value in note.batch.values] if is_false else note.batch.values
        is_silent = self.rng.random() < _SILENT_SHARE
        was_acknowledged = note.batch.outcome is Outcome.ACKED
        note.batch.sends += 1
        data = PartitionProduceData(
            index=self.at[1],
            records=self._encoded(note, values),
            expected_offset=note.expected,
            expected_topic_id=note.batch.topic_id,
            append_id=note.append_id,
            id_unused_before=0 if is_silent else note.unused_before,
        )

        def answered(row: PartitionProduceResponse) -> None:
            if was_acknowledged:
                self._judge_repetition(note, row, is_false=is_false)
            if not is_false:
                self._learn_from(note, row, is_silent=is_silent)

        self.produce(address, data, answered, lambda: self._unanswered(note))

    def _chosen(self) -> _Note:
        """The payment to send: a new one, or one that was sent before."""
        if not self._notes or self.rng.random() < _NEW_SHARE:
            number = len(self._notes)
            values = [f"{self.name}/{number}.{index}".encode() for index in range(self.rng.randint(1, 2))]
            # The order of payments is free: each counts as one of a producer of its own.
            batch = Batch(
                f"{self.name}/{number}", self.at, number, values, -1, True, self.world.seconds(),
                topic_id=self.topics[self.at[0]].topic_id,
            )  # fmt: skip
            self.history.batches.append(batch)
            self._notes.append(_Note(batch, self.rng.randbytes(APPEND_ID_SIZE), self._end, self._end))
            return self._notes[-1]
        is_settled = self.rng.random() < _SETTLED_SHARE
        fitting = [note for note in self._notes if (note.batch.outcome is Outcome.ACKED) is is_settled]
        note = self.rng.choice(fitting or self._notes)
        # A process that has just read where the log ends, or one that goes by its notes.
        if self.rng.random() < 0.5:
            note.expected = max(note.expected, self._end)
        return note

    def _encoded(self, note: _Note, values: list[bytes]) -> bytearray:
        assert self._producer is not None
        builder = BatchBuilder()
        for index, value in enumerate(values):
            headers = () if index else ((APPEND_ID_HEADER, note.append_id),)
            builder.append(self.process.clock.date_ms(), None, value, headers)
        producer_id, epoch = self._producer
        return builder.build(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=self._sequence, has_append_id=True
        )

    # Answers

    def _unanswered(self, note: _Note) -> None:
        """The payment may be in the log. The next process asks."""
        self._forget_outcome(note)
        self._crash()

    @staticmethod
    def _forget_outcome(note: _Note) -> None:
        if note.batch.outcome is not Outcome.ACKED:
            note.batch.outcome = Outcome.UNKNOWN

    def _learn_from(self, note: _Note, row: PartitionProduceResponse, *, is_silent: bool) -> None:
        self._end = max(self._end, row.next_offset)
        batch = note.batch
        if row.error_code == ErrorCode.NONE:
            if not row.is_repeat:
                self._sequence += len(batch.values)
            batch.outcome, batch.offset = Outcome.ACKED, row.base_offset
            end = row.base_offset + len(batch.values)
            self.history.told_committed(self._place(note), end, f"the answer to {batch}")
            return
        self._forget_outcome(note)
        if row.error_code == ErrorCode.OFFSET_MISMATCH:
            note.expected = row.next_offset
        elif row.error_code == ErrorCode.APPEND_ID_UNKNOWN:
            note.expected = row.next_offset
            if not is_silent:
                self._read(note, row.append_ids_from)
        elif row.error_code in PASSING or row.error_code in _LOST_SEQUENCE:
            self._crash()
            self.refresh()
        else:
            code = ErrorCode(row.error_code).name
            self.history.violation(f"{batch} was refused with {code}: {row.error_message}")

    def _read(self, note: _Note, end: int) -> None:
        """Look for a payment before `end`, as far as consumers have read."""
        seen = self.history.seen.get(self._place(note), [])
        if len(seen) < end:
            return
        first = note.batch.values[0]
        if first in seen[note.unused_before : end]:
            note.batch.outcome, note.batch.offset = Outcome.ACKED, seen.index(first, note.unused_before)
        else:
            note.unused_before = end

    def _place(self, note: _Note) -> Incarnation:
        return Incarnation(self.at, note.batch.topic_id)

    # The judge

    def _judge_repetition(self, note: _Note, row: PartitionProduceResponse, *, is_false: bool) -> None:
        """Check the answer to a payment that had been acknowledged before it was sent."""
        batch, code = note.batch, row.error_code
        if code == ErrorCode.NONE and is_false:
            self.history.violation(f"{batch} was acknowledged again, with another amount")
        elif code == ErrorCode.NONE and (not row.is_repeat or row.base_offset != batch.offset):
            self.history.violation(f"{batch} is at {batch.offset}, and again at {row.base_offset}")
        elif code == ErrorCode.OFFSET_MISMATCH:
            self.history.violation(f"{batch} is at {batch.offset}, but a broker said that it is not there")
        elif code == ErrorCode.INVALID_REQUEST and not is_false:
            self.history.violation(f"{batch} was repeated and refused: {row.error_message}")
        elif code == ErrorCode.APPEND_ID_UNKNOWN and self._remembers_all:
            self.history.violation(f"{batch} is at {batch.offset}, but its id was forgotten for no reason")
