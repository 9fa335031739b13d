"""The queues in which operations on the same resource take turns.

Each operation waits until it is the first in the queues of all its resources. Then it begins: what it grants
is written first, and put into force once that is durable.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_log.broker.ownership.claims import Promote
from holdfast_log.broker.ownership.effects import AnswerTicket, FailTicket, RecordWrite, Reload, Write
from holdfast_log.broker.ownership.forgetting import ForgetNames, forgettable_names
from holdfast_log.broker.ownership.operations import Operation, RecordsByKey
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for


class _Stage(enum.Enum):
    """The stage of a submitted operation."""

    WAITING = enum.auto()
    """It waits for its turn, and can still be given up."""
    WRITING = enum.auto()
    """Its records are being written."""
    ABANDONED = enum.auto()
    """A resource was unloaded while its records were being written: only ZooKeeper knows the outcome."""


@dataclass(slots=True, eq=False)
class _Submission:
    """An operation in the queues. `ticket` is None where no request waits for its result."""

    operation: Operation
    ticket: int | None
    stage: _Stage = _Stage.WAITING
    replaced: dict[ResourceKey, int] = field(default_factory=dict)
    """The versions of the znodes that its write replaces."""


class OperationQueues:
    """The operations of one table that wait for their turn or are being written."""

    def __init__(self, state: TableState) -> None:
        self._state = state
        self._queues: dict[ResourceKey, deque[_Submission]] = {}
        self._by_ticket: dict[int, _Submission] = {}
        self._writes: dict[int, _Submission] = {}
        """The submissions whose records are being written, by the number of the write."""
        self._write_number = 0
        self._ready: deque[_Submission] = deque()
        """Submissions that may be at the heads of their queues by now."""
        self._to_retry: dict[ResourceKey, None] = {}
        """Resources with waiters whose promotion could not be written."""
        self._forgetting: _Submission | None = None
        """The task under way that forgets names. There is one at a time."""
        self._held: dict[_Submission, None] = {}
        """Claims of new names that wait until it has made room."""

    # -- turns -----------------------------------------------------------------------------------------

    def submit(self, operation: Operation, now_ms: int, ticket: int | None = None) -> None:
        """Have an operation carried out when its turn has come, and answer `ticket` with its result."""
        operation.submitted(self._state)
        self._enqueue(operation, ticket)
        self.settle(now_ms)

    def give_up(self, ticket: int, now_ms: int) -> None:
        """The request no longer waits for its answer: an operation that has not begun never will."""
        submission = self._by_ticket.get(ticket)
        if submission is not None and submission.stage is _Stage.WAITING:
            self._finish(submission)
            self.settle(now_ms)

    def _enqueue(self, operation: Operation, ticket: int | None = None) -> _Submission:
        submission = _Submission(operation, ticket)
        if ticket is not None:
            self._by_ticket[ticket] = submission
        for key in operation.keys:
            self._queues.setdefault(key, deque()).append(submission)
        self._ready.append(submission)
        return submission

    def settle(self, now_ms: int) -> None:
        """Begin all operations whose turn has come, and promote waiters of resources that are free."""
        to_promote = self._state.to_promote
        while self._ready or to_promote:
            while self._ready:
                self._begin(self._ready.popleft(), now_ms)
            for key in list(to_promote):
                del to_promote[key]
                if not any(isinstance(each.operation, Promote) for each in self._queues.get(key, ())):
                    self._enqueue(Promote(key))

    def _begin(self, submission: _Submission, now_ms: int) -> None:
        """Begin an operation, if it is its turn with all its resources."""
        operation = submission.operation
        if submission.stage is not _Stage.WAITING:
            return
        queues = [self._queues.get(key) for key in operation.keys]
        if not all(queue and queue[0] is submission for queue in queues):
            return
        if self._waits_for_room(operation, now_ms):
            self._held[submission] = None
            return
        try:
            records = operation.begin(self._state, now_ms)
        except BrokerError as error:
            self._fail(submission, error)
            self._finish(submission)
            return
        if records:
            self._write(submission, records)
            return
        self._carry_out(submission, now_ms)
        self._finish(submission)

    def _write(self, submission: _Submission, records: RecordsByKey) -> None:
        submission.stage = _Stage.WRITING
        self._write_number += 1
        self._writes[self._write_number] = submission
        submission.replaced = {key: self._state.resource(key).version for key in records}
        items = [RecordWrite(key, record, submission.replaced[key]) for key, record in records.items()]
        self._state.effects.append(Write(self._write_number, tuple(items)))

    def _carry_out(self, submission: _Submission, now_ms: int) -> None:
        try:
            result = submission.operation.carry_out(self._state, now_ms)
        except BrokerError as error:
            self._fail(submission, error)
            return
        if submission.ticket is not None:
            answer = AnswerTicket(submission.ticket, tuple(result.standings), tuple(result.fences))
            self._state.effects.append(answer)

    def _fail(self, submission: _Submission, error: BrokerError) -> None:
        if submission.ticket is not None:
            self._state.effects.append(FailTicket(submission.ticket, error))

    def _finish(self, submission: _Submission) -> None:
        """Take an operation out of the queues, so that those behind it have their turn."""
        if submission.ticket is not None:
            self._by_ticket.pop(submission.ticket, None)
        self._held.pop(submission, None)
        if submission is self._forgetting:
            self._forgetting = None
            self._ready.extend(self._held)
            self._held.clear()
        for key in submission.operation.keys:
            queue = self._queues.get(key)
            if queue is None or submission not in queue:
                continue
            queue.remove(submission)
            if queue:
                self._ready.append(queue[0])
            else:
                del self._queues[key]
                self._state.forget_if_blank(key)

    # -- durability ------------------------------------------------------------------------------------

    def written(self, number: int, versions: Mapping[ResourceKey, int], now_ms: int) -> None:
        """The records of a write are durable, under these versions of their znodes."""
        submission = self._writes.pop(number)
        if submission.stage is _Stage.ABANDONED:
            self._reload(submission)
        else:
            resources = {key: self._state.resource(key) for key in versions}
            if any(resources[key].version != version for key, version in submission.replaced.items()):
                self._overtaken(submission)
            else:
                for key, version in versions.items():
                    resources[key].version = version
                self._carry_out(submission, now_ms)
        self._weigh(submission)
        self._finish(submission)
        self.settle(now_ms)

    def _weigh(self, submission: _Submission) -> None:
        """Count what the records have now."""
        for key in submission.operation.keys:
            self._state.weigh(key)

    def not_written(self, number: int, error: BrokerError, now_ms: int) -> None:
        """The records of a write are not durable, and never will be: nothing has changed."""
        submission = self._writes.pop(number)
        operation = submission.operation
        if submission.stage is _Stage.ABANDONED:
            self._reload(submission)
        else:
            operation.not_written(self._state)
            self._fail(submission, error)
            if submission is self._forgetting:
                self._fail_held()
            # Not promoted at once: the next write would fail as well. `flush` tries again.
            for key in operation.keys:
                if key in self._state.to_promote:
                    del self._state.to_promote[key]
                    self._to_retry[key] = None
        self._weigh(submission)
        self._finish(submission)
        self.settle(now_ms)

    def _overtaken(self, submission: _Submission) -> None:
        """The records of a write were loaded again before the answer of ZooKeeper came.

        Its grants are then in force already, with their owners detached; claimants that ask again get them.
        """
        submission.operation.not_written(self._state)
        message = "the leader has begun a new epoch meanwhile: try again"
        self._fail(submission, error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message))
        self._state.effects += [Reload(key) for key in submission.operation.keys]

    def _reload(self, submission: _Submission) -> None:
        """Only ZooKeeper knows the outcome of an abandoned operation."""
        keys = submission.operation.keys
        self._state.effects += [Reload(key) for key in keys if key in self._state.resources]

    # -- room for names --------------------------------------------------------------------------------

    def _waits_for_room(self, operation: Operation, now_ms: int) -> bool:
        """Whether an operation has to wait until names are forgotten, so that there is room for its own."""
        state = self._state
        wanted = operation.new_names(state)
        if not wanted:
            return False
        if state.names + wanted <= state.settings.names_max and state.has_room(operation.source):
            return False
        self.forget_names(now_ms)
        return self._forgetting is not None

    def forget_names(self, now_ms: int) -> None:
        """Begin to forget the names that have been free for longest, unless that is under way."""
        if self._forgetting is not None:
            return
        names = forgettable_names(self._state, self._queues, now_ms)
        if names:
            self._forgetting = self._enqueue(ForgetNames(names, now_ms))

    def _fail_held(self) -> None:
        held, self._held = self._held, {}
        message = "other names could not be forgotten to make room for this one: try again"
        for submission in held:
            self._fail(submission, error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message))
            self._finish(submission)

    # -- resources that come and go --------------------------------------------------------------------

    def abandon(self, key: ResourceKey, error: BrokerError) -> None:
        """No operation on a resource is carried out any more: the requests that wait fail with `error`."""
        for submission in list(self._queues.get(key, ())):
            if submission.stage is _Stage.ABANDONED:
                continue
            self._fail(submission, error)
            if submission.stage is _Stage.WRITING:
                # Its other resources stay in its queues until the outcome of the write is known.
                submission.stage = _Stage.ABANDONED
            else:
                self._finish(submission)
        self._to_retry.pop(key, None)

    @property
    def has_failed_promotions(self) -> bool:
        """Whether `retry_promotions` has something to do."""
        return bool(self._to_retry)

    def retry_promotions(self, now_ms: int) -> None:
        """Try again to promote waiters where a write failed."""
        retry, self._to_retry = self._to_retry, {}
        for key in retry:
            if key in self._state.resources:
                self._state.offer(self._state.resources[key])
        self.settle(now_ms)
