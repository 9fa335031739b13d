"""The base of simulated transactional producers: how they find coordinators, ask, and ask again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.sim.client import PASSING, RETRY_S, Client, Surroundings
from tests.sim.history import TopicPartition

R = TypeVar("R", bound=Response)

OF_GROUP, OF_TRANSACTION = 0, 1
"""Kinds of coordinators."""
UNCOMMITTED, COMMITTED = 0, 1
"""Isolation levels."""
_PATIENCE_S = 6.0
"""How long a transaction tries to write one batch, or to add partitions, before it is aborted."""
_LATEST = -1
_FIND_VERSION = 3

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
REPEATED = PASSING | MOVED | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""Errors after which a producer asks again."""


class TransactionClient(Client):
    """A process with a transactional id."""

    def __init__(self, around: Surroundings, name: str, transactional_id: str) -> None:
        super().__init__(around, name)
        self.transactional_id = transactional_id
        self._homes: dict[int, Address] = {}

    def sleep(self, seconds: float) -> Deferred[None]:
        slept: Deferred[None] = Deferred()
        self.later(seconds, slept.callback, None)
        return slept

    async def call(self, address: Address, request: Request[R], version: int | None = None) -> R | None:
        """The answer to a request; None if there is none."""
        try:
            answer = await self.send(address, request, version)
        except Exception:
            self.refresh()
            return None
        self.history.operations += 1
        return answer

    async def _home(self, kind: int, key: str) -> Address | None:
        home = self._homes.get(kind)
        if home is None:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            answer = await self.call(self.anyone(), request, _FIND_VERSION)
            if answer is None or answer.error_code != ErrorCode.NONE:
                return None
            home = self._homes[kind] = Address(answer.host, answer.port)
        return home

    async def ask(
        self,
        kind: int,
        key: str,
        request: Request[R],
        version: int,
        error_of: Callable[[R], int],
    ) -> tuple[ErrorCode, R | None]:
        """Ask a coordinator once. REQUEST_TIMED_OUT stands for no answer."""
        home = await self._home(kind, key)
        if home is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        answer = await self.call(home, request, version)
        error = ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode(error_of(answer))
        if answer is None or error in MOVED:
            self._homes.pop(kind, None)
        return error, answer

    def ask_own(
        self, request: Request[R], version: int, error_of: Callable[[R], int]
    ) -> Awaitable[tuple[ErrorCode, R | None]]:
        """Ask the coordinator of the transactional id once."""
        return self.ask(OF_TRANSACTION, self.transactional_id, request, version, error_of)

    async def patiently(
        self,
        attempt: Callable[[], Awaitable[ErrorCode]],
        what: str,
        final: frozenset[ErrorCode] = frozenset(),
        repeated: frozenset[ErrorCode] = REPEATED,
    ) -> ErrorCode:
        """Try something until it succeeds, is refused for good, or has taken too long (REQUEST_TIMED_OUT).
        `final` are the errors that end it besides those of a fenced producer."""
        until_s = self.world.seconds() + _PATIENCE_S
        while True:
            error = await attempt()
            if error is ErrorCode.NONE or error in FENCED or error in final:
                return error
            if error not in repeated:
                self.history.violation(f"{self.name} got {error.name} for {what}")
                return error
            if self.world.seconds() > until_s:
                return ErrorCode.REQUEST_TIMED_OUT
            await self.sleep(RETRY_S)

    async def end_of(self, at: TopicPartition, isolation_level: int) -> int | None:
        """Where readers of this isolation level end; None if nobody says it now."""
        leader = self.leader_of(at)
        if leader is None:
            self.refresh()
            return None
        row = ListOffsetsPartition(partition_index=at[1], current_leader_epoch=leader[1], timestamp=_LATEST)
        topic = ListOffsetsTopic(name=at[0], partitions=[row])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic])
        answer: Any = await self.call(leader[0], request)
        if answer is None:
            return None
        found = answer.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            self.refresh()
            return None
        return int(found.offset)
