"""Clients that claim a resource by the own API, confirm it as often as they can, and release it.

They use the low-level connection, because the times of every single answer are needed; a `Lease` would not
show them. A claimant of a partition also reads the partition, as its only reader.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass

from holdfast_log.checker.calls import NO_GRANT, Action, Outcome, OwnershipCall
from holdfast_log.checker.clients.crew import CheckSettings
from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.connection.conversation import Conversation
from holdfast_log.clients.ownership.claim_requests import (
    OwnDialect,
    RequestKind,
    ResourceRequest,
    request_for,
    standings_in,
)
from holdfast_log.clients.ownership.events import OwnedResource
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.ownership import IF_FREE, Access, ResourceStanding
from holdfast_log.protocol.topic_partition import TopicPartition

_SEARCH_TIMEOUT_MS = 1_000
_ANSWER_TIMEOUT_MS = 2_000
_HOLD_S = ((0.5, 3.0), (10.0, 20.0))
"""A claimant holds a resource either shortly, or longer than a fault lasts: then its broker may be cut
off while it holds."""
_TAKING_SHARE = 0.01
"""Share of the claims that take the resource from its owner."""
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_ACTIONS = {
    RequestKind.CLAIM: Action.CLAIM,
    RequestKind.RENEW: Action.RENEW,
    RequestKind.RESUME: Action.RESUME,
    RequestKind.RELEASE: Action.RELEASE,
}


@dataclass(slots=True)
class _Tenure:
    """A grant that this client has, and the conversation in which it was last confirmed."""

    generation: int
    incarnation: int
    release_at_s: float
    conversation: Conversation | None
    is_detached: bool = False


class RivalClaimant:
    """Claims a name, or reads a partition alone, among others that want the same. `checker.clients.crew` runs
    it."""

    def __init__(self, name: str, settings: CheckSettings, group: str, resource: OwnedResource) -> None:
        self.name = name
        self._settings = settings
        self._recorder = settings.recorder
        self._resource = resource
        self._label = f"{group}/{resource}"
        self._connection = Connection(settings.bootstrap, {**settings.properties(), "client.id": name})
        access = Access.WRITE if isinstance(resource, str) else Access.READ
        self._dialect = OwnDialect(group, f"{name}-{uuid.uuid4()}", settings.session_ms, access)
        self._node = NO_NODE
        self._generation = IF_FREE
        """The generation that the last refusal named."""
        self._tenure: _Tenure | None = None

    def step(self) -> None:
        if self._node == NO_NODE:
            self._find_node()
            return
        tenure = self._tenure
        if tenure is None:
            self._claim()
        elif tenure.release_at_s < self._recorder.now_s():
            self._ask(RequestKind.RELEASE, tenure)
        elif tenure.is_detached:
            self._ask(RequestKind.RESUME, tenure)
        elif isinstance(self._resource, TopicPartition) and random.random() < 0.7:
            self._read(self._resource, tenure)
        else:
            self._ask(RequestKind.RENEW, tenure)

    def close(self) -> None:
        self._connection.close()

    # The broker that decides --------------------------------------------------------------------------

    def _find_node(self) -> None:
        """Ask a random broker which broker decides: each may have another opinion."""
        if isinstance(self._resource, TopicPartition):
            self._connection.metadata.want(self._resource.topic)
            self._connection.metadata.renew()
            self._connection.poll(_SEARCH_TIMEOUT_MS)
            self._node = self._connection.metadata.leader(*self._resource)
            return
        group = self._dialect.group
        node = random.choice([ANY_NODE, *self._connection.metadata.nodes])
        search = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
        response = self._connection.ask(node, search, _SEARCH_TIMEOUT_MS)
        for found in response.coordinators:
            if found.error_code == ErrorCode.NONE and found.node_id in self._connection.metadata.nodes:
                self._node = found.node_id
        if self._node == NO_NODE:
            self._connection.metadata.renew()
            self._connection.poll(_SEARCH_TIMEOUT_MS)

    # Calls --------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        is_taking = self._generation > 0 and random.random() < _TAKING_SHARE
        self._ask(RequestKind.CLAIM, None, self._generation if is_taking else IF_FREE)

    def _ask(self, kind: RequestKind, tenure: _Tenure | None, generation: int = IF_FREE) -> None:
        incarnation = NO_GRANT
        if tenure is not None:
            generation, incarnation = tenure.generation, tenure.incarnation
        wanted = [ResourceRequest(kind, self._resource, generation, incarnation)]
        request = request_for(self._dialect, wanted, _ANSWER_TIMEOUT_MS)
        is_taking = kind is RequestKind.CLAIM and generation != IF_FREE
        asked_s = self._recorder.now_s()
        try:
            response = self._connection.ask(self._node, request)
        except Exception:
            self._record(_ACTIONS[kind], asked_s, Outcome.UNKNOWN, incarnation, is_taking=is_taking)
            self._leave()
            raise
        (standing,) = standings_in(response, [self._resource])
        self._generation = max(self._generation, standing.generation)
        code = ErrorCode(standing.error_code)
        if kind is RequestKind.RELEASE:
            self._released(asked_s, incarnation, code)
        elif code is ErrorCode.NONE:
            self._confirmed(_ACTIONS[kind], asked_s, standing, is_taking=is_taking)
        else:
            self._refused(_ACTIONS[kind], asked_s, incarnation, code, is_taking=is_taking)

    def _read(self, partition: TopicPartition, tenure: _Tenure) -> None:
        """Read the first batch, which is an owned read only on the connection that has the grant."""
        info = self._connection.metadata.topics.get(partition.topic)
        conversation = self._connection.conversation(self._node)
        if info is None or conversation is None or conversation is not tenure.conversation:
            tenure.is_detached = True
            return
        first = FetchPartition(partition=partition.partition, fetch_offset=0, partition_max_bytes=1)
        topic = FetchTopic(topic=partition.topic, topic_id=info.id, partitions=[first])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic], forgotten_topics_data=[])
        asked_s = self._recorder.now_s()
        try:
            response = self._connection.ask(self._node, request)
        except Exception:
            self._record(Action.READ, asked_s, Outcome.UNKNOWN, tenure.incarnation)
            self._leave()
            raise
        if _has_records(response) and self._connection.conversation(self._node) is conversation:
            self._record(Action.READ, asked_s, Outcome.DONE, tenure.incarnation, self._settings.session_ms)

    # Answers ------------------------------------------------------------------------------------------

    def _confirmed(
        self, action: Action, asked_s: float, standing: ResourceStanding, *, is_taking: bool
    ) -> None:
        self._record(
            action,
            asked_s,
            Outcome.DONE,
            standing.incarnation,
            self._settings.session_ms,
            is_taking=is_taking,
        )
        if self._tenure is None:
            release_at_s = self._recorder.now_s() + random.uniform(*random.choice(_HOLD_S))
            self._tenure = _Tenure(standing.generation, standing.incarnation, release_at_s, None)
        self._tenure.conversation = self._connection.conversation(self._node)
        self._tenure.is_detached = False

    def _released(self, asked_s: float, incarnation: int, code: ErrorCode) -> None:
        if code in (ErrorCode.NONE, ErrorCode.OWNERSHIP_FENCED):
            outcome = Outcome.DONE if code is ErrorCode.NONE else Outcome.REFUSED
            self._record(Action.RELEASE, asked_s, outcome, incarnation)
            self._tenure = None
            return
        self._record(Action.RELEASE, asked_s, Outcome.UNKNOWN, incarnation)
        self._leave()

    def _refused(
        self, action: Action, asked_s: float, incarnation: int, code: ErrorCode, *, is_taking: bool
    ) -> None:
        if code is ErrorCode.OWNERSHIP_FENCED and self._tenure is not None:
            self._record(action, asked_s, Outcome.REFUSED, incarnation)
            self._tenure = None
        elif code is ErrorCode.REQUEST_TIMED_OUT and action is Action.CLAIM:
            # The grant stands, and is not confirmed: the session ends it.
            self._record(action, asked_s, Outcome.UNKNOWN, NO_GRANT, is_taking=is_taking)
        elif self._tenure is None:
            self._record(action, asked_s, Outcome.REFUSED, NO_GRANT)
        if code is ErrorCode.OWNERSHIP_DETACHED and self._tenure is not None:
            self._tenure.is_detached = True
        elif code in _MOVED or (self._tenure is None and random.random() < 0.2):
            self._leave()

    def _leave(self) -> None:
        """Look for the broker again, and resume there."""
        self._node = NO_NODE
        if self._tenure is not None:
            self._tenure.is_detached = True

    def _record(
        self,
        action: Action,
        asked_s: float,
        outcome: Outcome,
        grant: int,
        session_ms: int = 0,
        *,
        is_taking: bool = False,
    ) -> None:
        self._recorder.add(
            OwnershipCall(
                self.name,
                self._label,
                action,
                asked_s,
                self._recorder.now_s(),
                outcome,
                grant,
                session_ms / 1000,
                is_taking,
            )
        )


def _has_records(response: FetchResponse) -> bool:
    """Whether the only partition was read without an error, and has records."""
    rows = [row for topic in response.responses for row in topic.partitions]
    return any(row.error_code == ErrorCode.NONE and bool(row.records) for row in rows)
