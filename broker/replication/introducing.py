"""Who may begin to use a producer id in a partition, and who may raise its epoch.

Looked at only where a batch names a producer that the log does not know, or an epoch above the known one; all
other batches of idempotent producers cost one look-up.

A log takes any sequence from a producer that it does not know (KIP-360): it may have known the producer once,
or the topic may have been made anew. So if a producer's first batch is refused for now, and the reason ends
before the next one of its pipeline arrives, that one must not be taken: the client would be told that its
first batch is missing only after a later one was acknowledged, and librdkafka then takes the first for
stored.

An earlier leader may have refused the first batch. Therefore a leader refuses each producer that does not
begin with sequence 0 once, for now. Clients then send everything again that was not acknowledged, in order:
if the same batch still comes first, there is no earlier one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.introductions import UNKNOWN_SOURCE
from holdfast_log.broker.replication.admission import Origin
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.partition import NO_EPOCH
from holdfast_log.protocol.batches import BatchHeader, read_header
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for

_REFUSED_MAX = 10_000
"""Maximum number of producers whose refused batches are remembered; the longest unused are forgotten."""
_REFUSED_MS = 120_000
"""Time in ms after which a refused batch counts as given up. Clients try again far sooner."""
_FIRST_SEQUENCE = 0
"""The sequence with which clients begin, under each id and each epoch."""
_SEQUENCE_MASK = 0x7FFFFFFF

IdRefusal = Callable[[int], "BrokerError | None"]
"""Why a producer may not begin to use an id; None if it may."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """The sequence of the earliest batch of a producer that was refused for now; when a batch of the producer
    was refused last, in ms; and this replica's leader epoch then."""

    sequence: int
    refused_ms: int
    leader_epoch: int


class Introducing:
    """Judges appends of idempotent producers that are new to a log, or that raise their epoch."""

    def __init__(self, refusal: IdRefusal) -> None:
        self._refusal = refusal
        self._refused: dict[tuple[str, int, int, int], _Refused] = {}
        """By topic, partition, producer and epoch."""

    def judge(self, append: Append, origin: Origin | None, date_ms: int) -> None:
        """Fail an append that may not introduce its producer, or raise its epoch; note the source of one that
        introduces its producer."""
        prepared, partition = append.prepared, append.partition
        if prepared is None or partition is None or prepared.duplicate is not None:
            return
        if append.error is not None or append.origin is not AppendOrigin.CLIENT or origin is None:
            return
        header = prepared.headers[0]
        if header.producer_id < 0:
            return
        producers = partition.log.producers
        entry = producers.get(header.producer_id)
        if entry is None:
            refused = (
                self._refusal(header.producer_id)
                or self._behind_a_refused(append, header, date_ms)
                or self._perhaps_not_first(append, header, partition.leader_epoch)
            )
            if refused is not None:
                append.fail(refused)
            else:
                append.source = origin.source
        elif header.producer_epoch > entry.epoch and not header.is_transactional:
            # Who raises the epoch of a transactional producer, its coordinator has decided.
            introducer = producers.introductions.source_of(header.producer_id)
            if introducer not in (UNKNOWN_SOURCE, origin.source):
                append.fail(_foreign_epoch(header.producer_id, header.producer_epoch))

    def note_failed(self, append: Append, date_ms: int) -> None:
        """Remember an append that failed for now, if its producer is new to the log."""
        if (
            append.error is None
            or not append.error.code.retriable
            or append.origin is not AppendOrigin.CLIENT
        ):
            return
        try:
            header = read_header(append.records)
        except BrokerError:
            return
        partition = append.partition
        if header.producer_id < 0 or (
            partition is not None and partition.log.producers.get(header.producer_id) is not None
        ):
            return
        place = _place(append, header)
        known = self._refused.pop(place, None)
        sequence = header.base_sequence
        if known is not None and _is_later(sequence, known.sequence):
            sequence = known.sequence
        leader_epoch = NO_EPOCH if partition is None else partition.leader_epoch
        self._refused[place] = _Refused(sequence, date_ms, leader_epoch)
        if len(self._refused) > _REFUSED_MAX:
            del self._refused[next(iter(self._refused))]

    def _behind_a_refused(self, append: Append, header: BatchHeader, date_ms: int) -> BrokerError | None:
        """Why a batch of a new producer has to wait: an earlier one was refused, and will be sent again."""
        known = self._refused.get(_place(append, header))
        if (
            known is None
            or date_ms - known.refused_ms >= _REFUSED_MS
            or not _is_later(header.base_sequence, known.sequence)
        ):
            return None
        return error_for(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"the batch of producer {header.producer_id} with sequence {known.sequence} was refused a short "
            f"time ago, and must come before that with sequence {header.base_sequence}: send both again",
        )

    def _perhaps_not_first(
        self, append: Append, header: BatchHeader, leader_epoch: int
    ) -> BrokerError | None:
        """Why a batch of a new producer has to be sent again: an earlier leader may have refused one before
        it. No reason if this leader has refused a batch of the producer: it has sent all of them again."""
        known = self._refused.pop(_place(append, header), None)
        if header.base_sequence == _FIRST_SEQUENCE:
            return None
        if known is not None and known.leader_epoch == leader_epoch:
            return None
        return error_for(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"producer {header.producer_id} is new here and does not begin with sequence {_FIRST_SEQUENCE}: "
            "send its batches again that were not acknowledged, in their order",
        )


def _is_later(sequence: int, other: int) -> bool:
    """Whether a sequence comes after another one; after the last of all comes 0 again."""
    return 0 < (sequence - other) & _SEQUENCE_MASK <= _SEQUENCE_MASK >> 1


def _place(append: Append, header: BatchHeader) -> tuple[str, int, int, int]:
    return append.topic, append.index, header.producer_id, header.producer_epoch


def _foreign_epoch(producer_id: int, epoch: int) -> BrokerError:
    return error_for(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"another client has introduced producer {producer_id} here, and only that one may raise its epoch "
        f"(to {epoch}): start the producer again, so that it gets an id of its own",
    )
