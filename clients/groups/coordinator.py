"""Finds a group's coordinator when it is needed, and again when it has moved."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.clients.connection.backoff import RepeatPace
from holdfast_log.clients.connection.connection import ANY_NODE, COORDINATOR, Connection
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import is_retriable, with_cause
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)

COORDINATOR_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""Errors after which the coordinator must be found again."""
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
_FREE_SEARCHES = 3


@dataclass(frozen=True, slots=True)
class CoordinatorNode:
    """The broker that coordinates a group or a transactional id, and its address."""

    node: int
    host: str
    port: int


def find_coordinator_request(key: str, key_type: int = GROUP_KEY_TYPE) -> FindCoordinatorRequest:
    """Asks any broker for the coordinator of a group, or of a transactional id (`TRANSACTION_KEY_TYPE`)."""
    return FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])


def coordinator_in(response: FindCoordinatorResponse) -> CoordinatorNode:
    """The coordinator that a response names. Raises BrokerError."""
    row: FoundCoordinator | FindCoordinatorResponse = response
    if response.coordinators:
        row = response.coordinators[0]
    if row.error_code:
        raise error_for(row.error_code, row.error_message)
    return CoordinatorNode(row.node_id, row.host, row.port)


class GroupCoordinator:
    """The coordinator of one group, and a connection to it that carries group requests only.

    The answer to JoinGroup may take minutes. Answers on a connection come in order, so fetches on the same
    connection would wait for it.
    """

    def __init__(self, connection: Connection, group_id: str, retry_backoff_ms: int) -> None:
        self.group_id = group_id
        self.backoff = connection.backoff
        self._searches = RepeatPace(self.backoff, _FREE_SEARCHES)
        self.retry_backoff_ms = retry_backoff_ms
        self.is_known = False
        self.last_error: Exception | None = None
        """Why the last search failed."""
        self.is_line_taken = False
        """Whether a request that the coordinator may answer late is in flight on the group's connection."""
        self._problem: Exception | None = None
        self._connection = connection
        self._node = COORDINATOR
        self._is_wanted = False
        self._search: Call | None = None
        self._not_before_ms = 0

    def want(self) -> bool:
        """Whether the coordinator is known; if not, `calls` will search for it."""
        self._is_wanted = True
        return self.is_known

    def found(self, place: CoordinatorNode) -> None:
        """Use this broker as the coordinator."""
        self._connection.open_line(place.host, place.port)
        self._node = place.node
        self.is_known = True
        self.last_error = None

    @property
    def quick_node(self) -> int:
        """Node for requests that need a quick answer: not the group's connection while that is taken."""
        return self._node if self.is_line_taken else COORDINATOR

    def forget(self) -> None:
        """Search again, at another broker: the coordinator has moved, or does not answer."""
        if self.is_known:
            self._connection.metadata.doubt(self._node)
        self.is_known = False

    def wait(self, now_ms: int) -> None:
        """Search again after `retry.backoff.ms` at the earliest."""
        self._not_before_ms = max(self._not_before_ms, now_ms + self.retry_backoff_ms)

    def calls(self, now_ms: int) -> list[Call]:
        """The FindCoordinator request, if one is due."""
        if self.is_known or not self._is_wanted or self._search is not None or now_ms < self._not_before_ms:
            return []
        self._search = Call(ANY_NODE, find_coordinator_request(self.group_id))
        # A coordinator that is found and refuses at once is no failure of the search.
        self._not_before_ms = max(self._not_before_ms, now_ms + self._searches.step(now_ms))
        return [self._search]

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply; returns whether it answered the search."""
        if reply.call is not self._search:
            return False
        self._search = None
        try:
            if reply.error is not None:
                raise reply.error
            assert isinstance(reply.response, FindCoordinatorResponse)
            self.found(coordinator_in(reply.response))
        except Exception as error:
            self.last_error = error
            self.wait(now_ms)
            if not is_retriable(error):
                self._problem = error
        return True

    def standing(self) -> str:
        """What a request to the coordinator waits for, in words; empty if for nothing that is known."""
        if self.is_known:
            return self._connection.standing(self.quick_node)
        return with_cause("the group's coordinator is not known", self._connection.standing(ANY_NODE))

    def raise_problem(self) -> None:
        """Raise the error of the last search once, if it is not retriable."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def next_event_ms(self, now_ms: int) -> int | None:
        """When the next search is due; None if none is."""
        if self.is_known or not self._is_wanted or self._search is not None:
            return None
        return max(now_ms, self._not_before_ms)
