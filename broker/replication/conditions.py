"""Conditional appends, which succeed only if the log ends at the expected offset (KIP-27), or if the last
record with a key is at the expected offset (own API).

The conditions of a request are judged after all its appends have been prepared and admitted, and before the
first append. A condition that fails, or cannot be judged, refuses the whole request.

A condition on one partition on which appends to others depend says something about the present: only the
current leader can judge it. It is judged only while this broker may confirm that it leads the partition. The
appends are acknowledged only if it still may, in the same leader epoch, once what was judged is committed.

A mismatch is answered only while this broker may confirm that it leads: the answer says where the log ends,
or what the key's last record is, and a replaced leader does not know. A condition on the partition to which
its batches go needs no such right to succeed: once they are committed, so is everything that it was judged
by. An append that depends on versions of keys does not make later ones of the connection fail: other keys
are independent of it.

An append whose id the log has already is not judged: it is answered with the offset of the first, once that
is committed. If the broker may have forgotten the id, the append is refused with APPEND_ID_UNKNOWN, whatever
the log's end: otherwise the client would append it a second time. A refusal says something about the present
as well, because the log of a replaced leader may lack the append.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from holdfast_log.broker.log.key_runs import NO_VERSION
from holdfast_log.broker.log.key_search import last_offset_of_key
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.replication.admission import Origin
from holdfast_log.broker.replication.appends import (
    ACKS_ALL,
    ANY_EPOCH,
    NO_EXPECTATION,
    UNNUMBERED,
    UNSAID,
    Append,
    Condition,
)
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.errors import (
    AppendIdUnknownError,
    BrokerError,
    ErrorCode,
    KeyVersionMismatchError,
    OffsetMismatchError,
)
from holdfast_log.protocol.messages.produce import KeyVersion
from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.topic_partition import TopicPartition

_MISMATCHES = (OffsetMismatchError, AppendIdUnknownError, KeyVersionMismatchError)
"""Refusals that say where the log, or a key's last record, is at present."""

REFUSALS_MAX = 10_000
"""Maximum number of partitions per connection whose refusals are remembered, more than any client has in
flight."""


class _Refusal:
    """A refused conditional append of one connection to one partition.

    `attempt` is the newest refused attempt. If the client does not number its attempts, its requests up to
    number `last_request` are refused too, because the client sent them before it received the refusal.
    `last_request` is None until the refusal is answered.
    """

    __slots__ = ("attempt", "last_request")

    def __init__(self) -> None:
        self.attempt = UNNUMBERED
        self.last_request: int | None = None

    def covers(self, condition: Condition, origin: Origin) -> bool:
        """Whether the client sent the batch before it received the refusal."""
        if condition.attempt != UNNUMBERED:
            return condition.attempt <= self.attempt
        return self.last_request is None or origin.requests <= self.last_request


class Conditions:
    """Judges conditions, and remembers refusals until their connection closes.

    `may_confirm` returns whether this broker may confirm that it leads a partition.
    """

    def __init__(self, may_confirm: Callable[[Partition], bool]) -> None:
        self._may_confirm = may_confirm
        self._refusals: weakref.WeakKeyDictionary[Origin, dict[TopicPartition, _Refusal]] = (
            weakref.WeakKeyDictionary()
        )
        self._has_refused = False
        """Whether any condition was ever refused; if not, the connection is not looked up."""
        self.mismatches = 0
        """Number of conditions that failed."""
        self._mismatch_listeners: list[Callable[[Partition], None]] = []

    def add_mismatch_listener(self, listener: Callable[[Partition], None]) -> None:
        """Call `listener` with the partition of each condition that fails."""
        self._mismatch_listeners.append(listener)

    def judge(self, appends: Sequence[Append], origin: Origin | None, acks: int) -> None:
        """Refuse the whole request if one of its conditions fails; each append gets its reason."""
        is_refused = False
        for append in appends:
            if append.condition is None:
                continue
            if append.error is None and append.partition is not None:
                append.judged_epoch = append.partition.leader_epoch
                is_judged = not append.is_duplicate and _is_depended_on(append, appends)
                if is_judged and not self._may_confirm(append.partition):
                    append.settles_at = None
                    append.fail(_unconfirmed(append))
            # Batches that the log already has are not judged again: a retry succeeds.
            if append.error is None and (append.is_repeat or not append.is_duplicate):
                append.error = self._refusal(append, origin, acks)
            is_refused = is_refused or append.error is not None
        if not is_refused:
            return
        has_lost = any(_counts_lost_records(append) for append in appends)
        for append in appends:
            if append.error is not None:
                continue
            if not append.is_duplicate:
                append.error = BrokerError(
                    ErrorCode.OPERATION_NOT_ATTEMPTED,
                    "nothing was appended: the condition on another partition of the request failed",
                )
                append.settles_at = None
            elif has_lost and not append.is_repeat:
                append.settles_at = None
                append.fail(
                    BrokerError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        "the outcome is unknown: the records are in the log, but the condition on another "
                        "partition of the request counted records which that partition has lost",
                    )
                )
        self.remember(appends, origin)

    def confirm(self, appends: Sequence[Append]) -> None:
        """Call this when the request is about to be answered: it fails the appends that depend on a condition
        which this broker cannot confirm. Their records may be in the logs, so their outcome is unknown."""
        lost = False
        for append in appends:
            if append.condition is None:
                continue
            if isinstance(append.error, _MISMATCHES) and not self._is_confirmed(append):
                append.settles_at = None
                append.fail(_unconfirmed(append))
            if not _is_depended_on(append, appends):
                continue
            if append.error is None and not append.is_duplicate and not self._is_confirmed(append):
                append.settles_at = None
                append.fail(_unconfirmed(append))
            lost = lost or append.error is not None
        if not lost:
            return
        for append in appends:
            if append.error is None and append.result is not None and not append.is_duplicate:
                append.fail(
                    BrokerError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        "the outcome is unknown: the records were appended, but a condition on another "
                        "partition of the request could not be confirmed",
                    )
                )

    def _is_confirmed(self, append: Append) -> bool:
        partition = append.partition
        assert partition is not None
        return partition.leader_epoch == append.judged_epoch and self._may_confirm(partition)

    def _refusal(self, append: Append, origin: Origin | None, acks: int) -> BrokerError | None:
        partition, condition = append.partition, append.condition
        assert partition is not None and condition is not None
        if acks != ACKS_ALL:
            return BrokerError(
                ErrorCode.INVALID_REQUIRED_ACKS,
                "a conditional append needs acks=all: otherwise the records before it could be lost",
            )
        if ZERO_UUID != condition.topic_id != partition.topic_id != ZERO_UUID:
            append.settles_at = None
            return BrokerError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"nothing was appended to {append.topic}-{append.index}: the condition is on topic id "
                f"{condition.topic_id}, and topic {append.topic} has id {partition.topic_id}: it was deleted "
                "and created again, or one of client and broker has not learned of it yet",
            )
        if append.is_repeat:
            return None
        error: BrokerError | None = _unknown_id_refusal(append, partition, condition)
        if error is None and condition.expected_offset != NO_EXPECTATION:
            error = self._offset_refusal(append, partition, condition, origin)
        if error is None and condition.versions:
            error = _version_refusal(append, partition, condition.versions)
        if isinstance(error, _MISMATCHES):
            if not self._may_confirm(partition):
                append.settles_at = None
                return _unconfirmed(append)
            self.mismatches += 1
            for mismatched in self._mismatch_listeners:
                mismatched(partition)
        return error

    def _offset_refusal(
        self, append: Append, partition: Partition, condition: Condition, origin: Origin | None
    ) -> BrokerError | None:
        log = partition.log
        end_offset = log.log_end_offset
        last_epoch = log.epochs.epoch_at(end_offset - 1)
        if self._has_refused and origin is not None and self._is_poisoned(append, condition, origin):
            why = "an earlier batch from this client was refused"
        elif condition.expected_offset != end_offset:
            why = f"the log ends at {end_offset}, not at {condition.expected_offset}"
        elif not _has_expected_epoch(log, condition):
            why = (
                f"the last record has leader epoch {last_epoch}, not {condition.expected_leader_epoch}: "
                "the log was truncated and rewritten"
            )
        else:
            return None
        append.settles_at = end_offset
        message = f"nothing was appended to {append.topic}-{append.index}: {why}"
        return OffsetMismatchError(ErrorCode.OFFSET_MISMATCH, message, end_offset, last_epoch)

    def _is_poisoned(self, append: Append, condition: Condition, origin: Origin) -> bool:
        refusal = self._refusals.get(origin, {}).get(append.topic_partition)
        return refusal is not None and refusal.covers(condition, origin)

    def remember(self, appends: Sequence[Append], origin: Origin | None) -> None:
        """Remember the conditional appends among these that were refused, for whatever reason."""
        refused = [
            append
            for append in appends
            if append.condition is not None
            and append.condition.expected_offset != NO_EXPECTATION
            and append.error is not None
        ]
        if origin is None or not refused:
            return
        self._has_refused = True
        of_origin = self._refusals.setdefault(origin, {})
        for append in refused:
            assert append.condition is not None
            where = append.topic_partition
            refusal = of_origin.get(where)
            if refusal is None:
                refusal = of_origin[where] = _Refusal()
            refusal.attempt = max(refusal.attempt, append.condition.attempt)
            refusal.last_request = None
        for where in list(of_origin)[: max(0, len(of_origin) - REFUSALS_MAX)]:
            del of_origin[where]

    def answered(self, append: Append, origin: Origin | None) -> None:
        """Record that the error of a conditional append was sent: the client may know it from now on."""
        if origin is None:
            return
        refusal = self._refusals.get(origin, {}).get(append.topic_partition)
        if refusal is not None:
            refusal.last_request = origin.received_requests


def _is_depended_on(append: Append, appends: Sequence[Append]) -> bool:
    """Whether a condition is about more than the partition to which its own batches go."""
    return append.is_guard or len(appends) > 1


def _counts_lost_records(append: Append) -> bool:
    """Whether a condition that failed names records which the partition does not have (any more).

    A retry succeeds although the log has moved on since its first attempt. But if the log lacks what the
    condition counted, the first attempt saw records that were never committed, and cannot be confirmed.
    """
    partition, condition = append.partition, append.condition
    if not isinstance(append.error, OffsetMismatchError) or partition is None or condition is None:
        return False
    expected = condition.expected_offset
    if partition.log.log_end_offset < expected:
        return True
    return not _has_expected_epoch(partition.log, condition)


def _unknown_id_refusal(append: Append, partition: Partition, condition: Condition) -> BrokerError | None:
    """The error if the log may have an append with this id that it does not remember."""
    log = partition.log
    known_from = log.producers.append_ids.known_from
    is_asked = condition.append_id is not None and condition.id_unused_before != UNSAID
    if not is_asked or known_from <= condition.id_unused_before:
        return None
    append.settles_at = end_offset = log.log_end_offset
    unnamed = (
        ""
        if condition.id_unused_before > 0
        else ". To avoid that, name the log's end from before the first attempt as unused_before: without it "
        "the whole log counts"
    )
    return AppendIdUnknownError(
        ErrorCode.APPEND_ID_UNKNOWN,
        f"nothing was appended to {append.topic}-{append.index}: the broker remembers the append ids from "
        f"offset {known_from} on, and this one may have been used between {condition.id_unused_before} and "
        f"there. Look for it in these records (header holdfast.append.id); if it is not there, send the "
        f"append again with unused_before={known_from}{unnamed}",
        end_offset,
        log.epochs.epoch_at(end_offset - 1),
        known_from,
    )


def _has_expected_epoch(log: Log, condition: Condition) -> bool:
    """Whether the record before the expected offset has the expected leader epoch."""
    epoch = condition.expected_leader_epoch
    return epoch == ANY_EPOCH or log.may_have_epoch(condition.expected_offset - 1, epoch)


def _version_refusal(
    append: Append, partition: Partition, expected: Sequence[KeyVersion]
) -> BrokerError | None:
    """The error if a key's last record is not where it is expected. A refusal is answered once all records
    that it names are committed."""
    assert append.prepared is not None
    digests = {delta: digest for digest, delta in (append.prepared.keys or ((),))[0]}
    mismatched: list[tuple[int, int]] = []
    try:
        for each in expected:
            digest = digests.get(each.record)
            # Without the index there are no digests, and the log raises the error.
            if digest is None and partition.log.keys is not None:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"record {each.record} has no key, and so no version",
                )
            present = last_offset_of_key(partition.log, digest or b"")
            if present != each.version:
                mismatched.append((each.record, present))
    except BrokerError as error:
        append.settles_at = None
        return error.with_traceback(None)
    if not mismatched:
        return None
    append.settles_at = max(version for _, version in mismatched) + 1
    record, version = mismatched[0]
    last = f"the last record with the key of record {record} is at offset {version}"
    if version == NO_VERSION:
        last = f"there is no record with the key of record {record}"
    return KeyVersionMismatchError(
        ErrorCode.KEY_VERSION_MISMATCH,
        f"nothing was appended to {append.topic}-{append.index}: {last}",
        mismatched,
    )


def _unconfirmed(append: Append) -> BrokerError:
    return BrokerError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"this broker cannot confirm that it leads {append.topic}-{append.index}: look for the leader",
    )
