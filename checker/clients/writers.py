"""Clients that write: at an offset that they expect, as a topic's exclusive producer, or during a term."""

from __future__ import annotations

import random
from contextlib import suppress

from holdfast_log.checker.calls import NO_GRANT, Action, Outcome, OwnershipCall
from holdfast_log.checker.clients.appends import append
from holdfast_log.checker.clients.crew import CheckSettings, new_value
from holdfast_log.clients.errors import ClientError, GuardElsewhereError, GuardMismatchError
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import (
    BrokerError,
    OffsetMismatchError,
    OwnershipRefusedError,
    ProducerFencedError,
)
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from holdfast_log.protocol.topic_partition import TopicPartition

_VALUES_MAX = 4
_HOLD_S = (1.0, 6.0)
_WAIT_MS = 10_000
_CLOSE_MS = 3_000
_FENCING_SHARE = 0.3
_TERM_S = (0.5, 3.0)


class ConditionalWriter:
    """Appends one to four values at the offset where it expects the log to end (KIP-27)."""

    def __init__(self, name: str, settings: CheckSettings, place: TopicPartition) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._place = place
        self._producer = Producer(settings.producer_properties())
        self._expected = 0

    def step(self) -> None:
        values = tuple(new_value(self.name) for _ in range(random.randint(1, _VALUES_MAX)))
        try:
            append(
                self._recorder,
                self.name,
                self._producer,
                self._place,
                values,
                expected_offset=self._expected,
            )
        except OffsetMismatchError as mismatch:
            self._expected = max(mismatch.next_offset, 0)
        else:
            self._expected += len(values)

    def close(self) -> None:
        self._producer.close(_CLOSE_MS)


class ExclusiveWriter:
    """Waits for exclusive access to a partition, or takes it, writes for seconds, and leaves (PIP-68)."""

    def __init__(self, name: str, settings: CheckSettings, place: TopicPartition) -> None:
        self.name = name
        self._settings = settings
        self._recorder = settings.recorder
        self._place = place
        self._producer: ExclusiveProducer | None = None
        self._epoch = NO_GRANT
        self._leave_at_s = 0.0

    def step(self) -> None:
        producer = self._producer
        if producer is None:
            self._enter()
        elif self._leave_at_s < self._recorder.now_s():
            self._leave()
        else:
            self._write(producer)

    def close(self) -> None:
        self._leave()

    def _enter(self) -> None:
        is_taking = random.random() < _FENCING_SHARE
        mode = ProducerAccessMode.WAIT_FOR_EXCLUSIVE
        if is_taking:
            mode = ProducerAccessMode.EXCLUSIVE_WITH_FENCING
        asked_s = self._recorder.now_s()
        try:
            producer = ExclusiveProducer(
                self._settings.producer_properties(),
                self._place.topic,
                mode,
                partitions=[self._place.partition],
                timeout_ms=_WAIT_MS,
                session_timeout_ms=self._settings.session_ms,
            )
        except OwnershipRefusedError:
            self._record(Action.CLAIM, asked_s, Outcome.REFUSED, NO_GRANT)
            raise
        except Exception:
            self._record(Action.CLAIM, asked_s, Outcome.UNKNOWN, NO_GRANT, is_taking=is_taking)
            raise
        epoch, fence_offset = producer.epoch(), producer.fence_offset()
        assert epoch is not None and fence_offset is not None, "an exclusive producer has both"
        self._record(
            Action.CLAIM, asked_s, Outcome.DONE, epoch, is_taking=is_taking, fence_offset=fence_offset
        )
        self._producer, self._epoch = producer, epoch
        self._leave_at_s = self._recorder.now_s() + random.uniform(*_HOLD_S)

    def _write(self, producer: ExclusiveProducer) -> None:
        asked_s = self._recorder.now_s()
        try:
            append(
                self._recorder,
                self.name,
                producer,
                self._place,
                (new_value(self.name),),
                grant=self._epoch,
            )
        except ProducerFencedError:
            self._record(Action.WRITE, asked_s, Outcome.REFUSED, self._epoch)
            self._leave()
        except Exception:
            self._record(Action.WRITE, asked_s, Outcome.UNKNOWN, self._epoch)
            raise
        else:
            self._record(Action.WRITE, asked_s, Outcome.DONE, self._epoch)

    def _leave(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(BrokerError, ClientError):
                producer.close(_CLOSE_MS)

    def _record(
        self,
        action: Action,
        asked_s: float,
        outcome: Outcome,
        grant: int,
        *,
        is_taking: bool = False,
        fence_offset: int = -1,
    ) -> None:
        self._recorder.add(
            OwnershipCall(
                self.name,
                str(self._place),
                action,
                asked_s,
                self._recorder.now_s(),
                outcome,
                grant,
                is_taking=is_taking,
                fence_offset=fence_offset,
            )
        )


class TermWriter:
    """Begins a term by an append to `terms`, and writes to `accounts` while no other term has begun: a guard
    on `terms` refuses everything later (KIP-27, guards)."""

    def __init__(
        self, name: str, settings: CheckSettings, terms: TopicPartition, accounts: TopicPartition
    ) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._terms = terms
        self._accounts = accounts
        self._producer = Producer(settings.producer_properties())
        self._terms_end = 0
        self._accounts_end = 0
        self._term = NO_GRANT
        self._next_term_s = 0.0

    def step(self) -> None:
        if self._term != NO_GRANT:
            self._write()
        elif self._next_term_s < self._recorder.now_s():
            self._begin()

    def close(self) -> None:
        self._producer.close(_CLOSE_MS)

    def _begin(self) -> None:
        asked_s = self._recorder.now_s()
        try:
            begun = append(
                self._recorder,
                self.name,
                self._producer,
                self._terms,
                (new_value(self.name),),
                expected_offset=self._terms_end,
            )
        except OffsetMismatchError as mismatch:
            self._terms_end = max(mismatch.next_offset, 0)
            return
        self._term = self._terms_end = begun.offset + 1
        self._record(Action.CLAIM, asked_s, Outcome.DONE, is_taking=True)

    def _write(self) -> None:
        asked_s = self._recorder.now_s()
        try:
            append(
                self._recorder,
                self.name,
                self._producer,
                self._accounts,
                (new_value(self.name),),
                expected_offset=self._accounts_end,
                guards={self._terms: self._term},
            )
        except GuardMismatchError as mismatch:
            self._record(Action.WRITE, asked_s, Outcome.REFUSED)
            self._terms_end = max(mismatch.next_offsets[self._terms], 0)
            self._term = NO_GRANT
            self._next_term_s = self._recorder.now_s() + random.uniform(*_TERM_S)
        except OffsetMismatchError as mismatch:
            self._accounts_end = max(mismatch.next_offset, 0)
        except GuardElsewhereError:
            raise  # The topics have different leaders at present, and nothing was written.
        else:
            self._accounts_end += 1
            self._record(Action.WRITE, asked_s, Outcome.DONE)

    def _record(self, action: Action, asked_s: float, outcome: Outcome, *, is_taking: bool = False) -> None:
        self._recorder.add(
            OwnershipCall(
                self.name,
                str(self._terms),
                action,
                asked_s,
                self._recorder.now_s(),
                outcome,
                self._term,
                is_taking=is_taking,
            )
        )
