"""Performs an ownership table's `OwnershipEffect` values in memory for tests.

The real performer is `broker.ownership.service`; `tests/broker/ownership/test_enforcement.py` runs the table
under it, with real logs and the modelled ZooKeeper.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod

from holdfast_log.broker.ownership.effects import (
    AnswerTicket,
    Audit,
    AwaitCommit,
    FailTicket,
    Fence,
    Notify,
    Reload,
    Sever,
    Write,
)
from holdfast_log.broker.ownership.operations import Operation
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.broker.ownership.state import LogEnd
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.coordinator.ownership.records import (
    Forgotten,
    PartitionKey,
    ResourceKey,
    decode_ownership,
    encode_ownership,
)
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.ownership import ResourceStanding


class TableHost(ABC):
    """A table, its znodes and its answers. With `holds_writes` nothing is durable until `settle_writes`."""

    def __init__(self, settings: OwnershipSettings | None = None) -> None:
        self.last_heard_ms: dict[int, int] = {}
        """Time at which each connection was last heard, in ms."""
        self.znodes: dict[ResourceKey, tuple[bytes, int]] = {}
        """Data and version of each resource's znode."""
        self.mark = 0
        """Above this number the incarnations of forgotten names begin."""
        self.holds_writes = False
        self.writes: list[Write] = []
        self.fences: list[Fence] = []
        self.audit: list[str] = []
        self.tickets = itertools.count(1)
        self._answers: dict[int, list[ResourceStanding] | BrokerError] = {}
        self._waiting: list[AnswerTicket] = []
        self._settings = settings
        self.table = self.new_table()

    def new_table(self) -> OwnershipTable:
        return OwnershipTable(self.log_end, self.last_heard_ms.__getitem__, self.time_ms, self._settings)

    @abstractmethod
    def time_ms(self) -> int: ...

    @abstractmethod
    def log_end(self, key: PartitionKey) -> LogEnd: ...

    @abstractmethod
    def high_watermark(self, key: PartitionKey) -> int: ...

    @abstractmethod
    def sever(self, connection: int) -> None:
        """End a connection, and report it to the table."""

    @abstractmethod
    def notify(self, connection: int, is_ping: bool) -> None: ...

    def submit(self, operation: Operation) -> int:
        """Carry out an operation. Returns its ticket."""
        ticket = next(self.tickets)
        self.table.submit(operation, self.time_ms(), ticket)
        self.perform()
        return ticket

    def is_answered(self, ticket: int) -> bool:
        return ticket in self._answers

    def answer(self, ticket: int) -> list[ResourceStanding]:
        """Take the answer to an operation. Raises BrokerError if the whole operation failed."""
        answer = self._answers.pop(ticket)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def load(self, key: ResourceKey) -> None:
        """Have the table read a resource's znode."""
        data, version = self.znodes[key]
        self.table.load(key, decode_ownership(key.path, data), version, self.time_ms())
        self.perform()

    def perform(self) -> None:
        """Perform the effects of the table, and what follows from them."""
        self._commit()
        while effects := self.table.take_effects():
            for effect in effects:
                match effect:
                    case Write():
                        self.writes.append(effect)
                    case AnswerTicket():
                        self._waiting.append(effect)
                        self._answer_committed()
                    case FailTicket(ticket, error):
                        self._answers[ticket] = error
                    case Sever(connection):
                        self.sever(connection)
                    case Notify(connection, is_ping):
                        self.notify(connection, is_ping)
                    case AwaitCommit(fence):
                        self.fences.append(fence)
                    case Reload(key):
                        self.load(key)
                    case Audit(line):
                        self.audit.append(line)
            if not self.holds_writes:
                self.settle_writes()
            self._commit()

    def settle_writes(self, error: BrokerError | None = None) -> None:
        """Complete all waiting writes, or fail them with `error`."""
        writes, self.writes = self.writes, []
        for write in writes:
            if error is not None:
                self.table.not_written(write.number, error, self.time_ms())
                continue
            self.table.written(write.number, self.land(write), self.time_ms())
        if writes:
            self.perform()

    def land(self, write: Write) -> dict[ResourceKey, int]:
        """Make a write in the znodes. Returns the new versions."""
        versions = {}
        for key, record, version in write.items:
            assert version == self.znodes.get(key, (b"", -1))[1], (
                "the write expects another version of the znode"
            )
            if isinstance(record, Forgotten):
                del self.znodes[key]
                self.mark = max(self.mark, record.incarnation)
                versions[key] = -1
                continue
            self.znodes[key] = (encode_ownership(record), version + 1)
            versions[key] = version + 1
        return versions

    def _is_committed(self, fence: Fence) -> bool:
        return fence.offset <= self.high_watermark(fence.key)

    def _commit(self) -> None:
        reached = [fence for fence in self.fences if self._is_committed(fence)]
        self.fences = [fence for fence in self.fences if fence not in reached]
        for fence in reached:
            self.table.fence_committed(fence)
        self._answer_committed()

    def _answer_committed(self) -> None:
        for answer in list(self._waiting):
            if all(map(self._is_committed, answer.fences)):
                self._waiting.remove(answer)
                self._answers[answer.ticket] = list(answer.standings)
