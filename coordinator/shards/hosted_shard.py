"""Runs one shard: handles its events one at a time and performs their results.

Results are performed in the order given in coordinator/shards/effects.py. Answers wait in one queue until the
log is committed up to their records, so no answer depends on records that may still be lost. An answer
without records of its own tells what is true at present: it also waits until it is proven that no other
broker has taken the shard over meanwhile.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock, TimeOfDay
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.shards.effects import (
    Claimer,
    Decision,
    MalformedRecord,
    OversizedRecords,
    ProducerStamp,
    RecordsRefused,
    RequestToken,
    ShardReply,
)
from holdfast_log.coordinator.shards.log import CommitWatch, ShardLog
from holdfast_log.protocol.errors import BrokerError, ErrorCode

_log = logging.getLogger(__name__)


class Shard(Protocol):
    """A machine without clock, network or log. Its results are `ShardEffects`, each shard's of a class of its
    own. Times are ms since the epoch and do not decrease."""

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Restore one record, in the order of the log. Raises `MalformedRecord`, without a change."""
        ...

    def replay_open(self, stamp: ProducerStamp, key: bytes, value: bytes | None) -> None:
        """Restore one record of a transaction that was open at the end of the log, after all others. Raises
        `MalformedRecord`."""
        ...

    def loaded(self, now_ms: int) -> Any:
        """All records have been replayed; requests may follow."""
        ...

    def refused(self, result: Any, error: ErrorCode, now_ms: int) -> Any:
        """The log refused the records of `result`, the last one that the shard returned. What this returns
        replaces it."""
        ...

    def too_large(self, result: Any) -> OversizedRecords:
        """What to say of records that are larger than the log takes."""
        ...

    def closed(self, error: ErrorCode) -> Any:
        """Another broker leads the partition: answer all waiting requests."""
        ...

    def close(self) -> None:
        """Another broker has the shard: its state counts no more in the memory of all shards."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When to call `tick`, or None; may change with every event."""
        ...

    def tick(self, now_ms: int) -> Any:
        """Handle deadlines that have passed; the earliest remaining one may have passed, too."""
        ...


S = TypeVar("S", bound=Shard)

ShardEvent = Callable[[S, RequestToken, int], Any]
"""One request to a shard: `event(shard, request, now_ms)`; its result answers the token `request`."""

_TRY_ANOTHER_BROKER = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class HostState(enum.Enum):
    """The life cycle of a hosted shard."""

    LOADING = "its records are being read"
    ACTIVE = "it serves requests"
    FAILED = "its records could not be read"
    CLOSED = "this broker no longer leads its partition"


_NEXT_STATES: dict[HostState, frozenset[HostState]] = {
    HostState.LOADING: frozenset({HostState.ACTIVE, HostState.FAILED, HostState.CLOSED}),
    HostState.ACTIVE: frozenset({HostState.CLOSED}),
    HostState.FAILED: frozenset({HostState.CLOSED}),
    HostState.CLOSED: frozenset(),
}
"""The transition table: for each state, the states that may follow."""


@dataclass(slots=True)
class _Unanswered:
    """A result whose answers wait until the log is committed up to `offset`, or until `deadline_ms`.

    `read_s`: when it was read, by the clock; None for a result with records, whose commit proves enough.
    """

    offset: int
    read_s: float | None
    deadline_ms: int
    replies: Sequence[ShardReply]
    claims: Sequence[Any]


class HostedShard(Generic[S]):
    """The shard of one partition, while this broker leads the partition in one leader epoch. `what` it keeps,
    for log lines: groups, or transactions."""

    def __init__(
        self,
        name: str,
        shard: S,
        log: ShardLog,
        clock: Clock,
        date_ms: TimeOfDay,
        *,
        commit_timeout_ms: int,
        repeated_log: RepeatedLog,
        claimer: Claimer | None = None,
        what: str = "groups",
    ) -> None:
        self.state = HostState.LOADING
        self._name = name
        self._what = what
        self._shard = shard
        self._log = log
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._repeated_log = repeated_log
        self._claimer = claimer
        self._began_s = clock.seconds()
        self._began_ms = date_ms()
        self._now_ms = self._began_ms
        self._replayed = 0
        self._unreadable = 0
        self._deferred_events: list[Callable[[S, int], Any]] = []
        self._end_offset = 0
        self._unanswered: deque[_Unanswered] = deque()
        self._claiming: dict[int, Sequence[ShardReply]] = {}
        """Answers that wait for claims, by a serial number of the call to the claimer."""
        self._claimings = 0
        self._is_appending = False
        self._watch: CommitWatch | None = None
        self._alarm = Alarm(clock, self._on_time)
        self._alarm_at_ms = 0

    def __repr__(self) -> str:
        return f"<HostedShard {self._name} {self.state.name}>"

    # Start and end

    def load(self) -> None:
        """Read the partition, then serve requests."""
        self._log.read_all(self._replay, self._replay_open).addCallbacks(self._loaded, self._load_failed)

    def close(self) -> None:
        """Another broker leads the partition: answer all waiting requests with NOT_COORDINATOR."""
        if self.state is HostState.CLOSED:
            return
        was_active = self.state is HostState.ACTIVE
        self._transition_to(HostState.CLOSED)
        self._shard.close()
        self._alarm.end()
        self._stop_watching()
        claiming, self._claiming = self._claiming, {}
        if self._claimer is not None:
            self._claimer.close()
        for replies in claiming.values():
            _refuse(replies, ErrorCode.NOT_COORDINATOR)
        while self._unanswered:
            _refuse(self._unanswered.popleft().replies, ErrorCode.NOT_COORDINATOR)
        if was_active:
            _answer(self._shard.closed(ErrorCode.NOT_COORDINATOR).replies)

    def _transition_to(self, state: HostState) -> None:
        assert state in _NEXT_STATES[self.state], f"{self._name}: {self.state.name} to {state.name}"
        self.state = state

    def _replay(self, key: bytes, value: bytes | None) -> None:
        self._restore(key, lambda: self._shard.replay(key, value))

    def _replay_open(self, stamp: ProducerStamp, key: bytes, value: bytes | None) -> None:
        self._restore(key, lambda: self._shard.replay_open(stamp, key, value))

    def _restore(self, key: bytes, restore: Callable[[], None]) -> None:
        try:
            restore()
        except MalformedRecord as error:
            self._unreadable += 1
            _log.error("Skipping an unreadable record of %s: %s (key %r)", self._name, error, key)
        self._replayed += 1

    def _loaded(self, _: None) -> None:
        if self.state is not HostState.LOADING:
            return
        self._transition_to(HostState.ACTIVE)
        self._end_offset = self._log.end_offset
        now = self._read_clock()
        self._perform(self._shard.loaded(now))
        events, self._deferred_events = self._deferred_events, []
        for event in events:
            self.apply(event)
        if self._replayed:
            _log.info(
                "Loaded the %s of %s: %d records read in %d ms",
                self._what, self._name, self._replayed, now - self._began_ms,
            )  # fmt: skip

    def _load_failed(self, failure: Failure) -> None:
        if self.state is not HostState.LOADING:
            return
        self._transition_to(HostState.FAILED)
        _log.error(
            "Cannot serve the %s of %s, because its records cannot be read: %s. Move leadership of the "
            "partition to another replica",
            self._what, self._name, failure.getErrorMessage(),
        )  # fmt: skip

    # Events

    def ask(self, event: ShardEvent[S], done: Deferred[Any]) -> None:
        """Handle one request; `done` fires with its answer once that is durable, or fails with
        BrokerError."""
        error = self.refusal()
        if error is None:
            self._perform(event(self._shard, done, self._read_clock()))
        else:
            done.errback(error)

    def refusal(self) -> BrokerError | None:
        """The error with which requests are refused at the moment, or None."""
        match self.state:
            case HostState.ACTIVE:
                return None
            case HostState.LOADING:
                return BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            case HostState.FAILED:
                return BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            case HostState.CLOSED:
                return BrokerError(ErrorCode.NOT_COORDINATOR)

    def apply(self, event: Callable[[S, int], Any]) -> None:
        """Handle an event that is not a request; while the shard is loading, the event is queued."""
        if self.state is HostState.ACTIVE:
            # Answers to later requests show the event: they wait for what the log has of it.
            self._end_offset = self._log.end_offset
            self._perform(event(self._shard, self._read_clock()))
        elif self.state is HostState.LOADING:
            self._deferred_events.append(event)

    @property
    def shard(self) -> S:
        """The shard, in any state; to count its memory."""
        return self._shard

    @property
    def served(self) -> S | None:
        """The shard, to look at; None unless it serves requests."""
        return self._shard if self.state is HostState.ACTIVE else None

    def _read_clock(self) -> int:
        """The time of day at which the shard was created plus the clock's time since then, in ms.

        Setting the time of day therefore neither ends nor prolongs a session.
        """
        self._now_ms = self._began_ms + int((self._clock.seconds() - self._began_s) * 1000)
        return self._now_ms

    # Performing results

    def _perform(self, result: Any) -> None:
        while result.records:
            try:
                self._append(result)
                break
            except BrokerError as error:
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    # It is unknown what was written; the next leader will read it.
                    _refuse(result.replies, ErrorCode.NOT_COORDINATOR)
                    self.close()
                    return
                result = self._shard.refused(result, self._error_for_members(error, result), self._now_ms)
                # A refusal depends on no record, so it can be answered at once.
                refusals, result.replies = result.replies, []
                _answer(refusals)
        if self.state is HostState.CLOSED:
            _refuse(result.replies, ErrorCode.NOT_COORDINATOR)
            return
        if result.replies or result.claims:
            deadline_ms = self._now_ms + self._commit_timeout_ms
            read_s = None if result.records else self._clock.seconds()
            unanswered = _Unanswered(self._end_offset, read_s, deadline_ms, result.replies, result.claims)
            self._unanswered.append(unanswered)
            self._settle()
        self._set_alarm()

    def _append(self, result: Any) -> None:
        # The append itself may commit what other answers wait for. They are sent after this result is queued,
        # because an answer can trigger the next request.
        self._is_appending = True
        try:
            self._log.append(result.records, self._now_ms, result.stamp)
            self._end_offset = self._log.end_offset
        finally:
            self._is_appending = False

    def _error_for_members(self, error: BrokerError, result: Any) -> ErrorCode:
        """The error for members whose records the log refused."""
        if error.code in _TRY_ANOTHER_BROKER:
            return ErrorCode.NOT_COORDINATOR
        if error.code in _TOO_LARGE:
            names, code = self._shard.too_large(result)
            self._repeated_log.error(
                _log,
                f"changes of {self._what} that are larger than max.message.bytes",
                "A record of %s (%.200s) is larger than the topic's max.message.bytes: %s",
                self._name, names, error,
            )  # fmt: skip
            return code
        self._repeated_log.warning(
            _log,
            f"changes of {self._what} that could not be written",
            "Writing a change of %s to %s failed: %s; its requests are answered with an error",
            self._what,
            self._name,
            error,
        )
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _settle(self) -> bool:
        """Answer the results that are committed; whether the queue is empty now."""
        if self._is_appending:
            return False
        committed = self._log.committed_offset
        while self._unanswered and self._may_answer(self._unanswered[0], committed):
            result = self._unanswered.popleft()
            if result.claims and self._claimer is not None:
                self._claim_then_answer(result, self._claimer)
            else:
                _answer(result.replies)
        if not self._unanswered:
            self._stop_watching()
        elif self._watch is None:
            self._watch = self._log.watch(self._settle)
        return not self._unanswered

    def _may_answer(self, result: _Unanswered, committed: int) -> bool:
        if result.offset > committed:
            return False
        return result.read_s is None or self._log.is_current_since(result.read_s)

    def _claim_then_answer(self, result: _Unanswered, claimer: Claimer) -> None:
        """Answer once the claims are made. Later results do not wait: their records are committed."""
        self._claimings += 1
        number = self._claimings
        self._claiming[number] = result.replies
        decision = Decision(self._log.leader_epoch, result.offset)
        claimer.claim(result.claims, decision).addCallback(lambda _: self._claimed(number))

    def _claimed(self, number: int) -> None:
        _answer(self._claiming.pop(number, ()))

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    # Time

    def _set_alarm(self) -> None:
        """Schedule `_on_time` for the next deadline; an early call is harmless."""
        if self.state is not HostState.ACTIVE:
            return
        due_ms = self._shard.next_deadline_ms()
        late_ms = next((result.deadline_ms for result in self._unanswered if result.replies), None)
        if due_ms is None or (late_ms is not None and late_ms < due_ms):
            due_ms = late_ms
        if due_ms is None:
            return
        if self._alarm.is_set and self._alarm_at_ms <= due_ms:
            return
        self._alarm_at_ms = due_ms
        self._alarm.set(max(0, due_ms - self._now_ms) / 1000)

    def _on_time(self) -> None:
        now = self._read_clock()
        due_ms = self._shard.next_deadline_ms()
        if due_ms is not None and due_ms <= now:
            self._perform(self._shard.tick(now))
        self._settle()
        self._time_out_requests(now)
        self._set_alarm()

    def _time_out_requests(self, now: int) -> None:
        """Answer requests past their deadline with an error. Their records stay, and claims are still
        made."""
        late: list[ShardReply] = []
        for result in self._unanswered:
            if result.deadline_ms > now:
                break
            late += result.replies
            result.replies = ()
        self._unanswered = deque(result for result in self._unanswered if result.replies or result.claims)
        _refuse(late, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if late:
            _log.warning(
                "%d requests of %s in %s timed out: their records were not committed within %d ms",
                len(late), self._what, self._name, self._commit_timeout_ms,
            )  # fmt: skip


def _answer(replies: Sequence[ShardReply]) -> None:
    for done, answer in replies:
        if isinstance(answer, RecordsRefused):
            done.errback(BrokerError(answer.error))
        else:
            done.callback(answer)


def _refuse(replies: Sequence[ShardReply], error: ErrorCode) -> None:
    for done, _ in replies:
        done.errback(BrokerError(error))
