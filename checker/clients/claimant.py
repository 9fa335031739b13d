"""Clients that claim a resource, confirm it as often as they can, and release it.

They use the low-level connection, because the times of every single answer are needed; a `Lease` would not
show them. They misbehave now and then: they name generations that they know to be outdated, sleep for longer
than their sessions, cut their connections and resume, and read a partition that they were refused.
"""

from __future__ import annotations

import math
import random
import uuid
from dataclasses import dataclass

from holdfast_log.checker.calls import NO_CONNECTION, NO_GRANT, NO_OFFSET, Action, Outcome, OwnershipCall
from holdfast_log.checker.clients.crew import CheckSettings
from holdfast_log.checker.clients.noticeboard import Notice
from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.connection.conversation import Conversation
from holdfast_log.clients.ownership.claim_requests import (
    ClaimDialect,
    OwnDialect,
    ProducerAccessDialect,
    RequestKind,
    ResourceRequest,
    request_for,
    standings_in,
)
from holdfast_log.clients.ownership.events import OwnedResource
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.ownership import IF_FREE, PRODUCERS_GROUP, Access, ResourceStanding
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from holdfast_log.protocol.topic_partition import TopicPartition

_SEARCH_TIMEOUT_MS = 1_000
_ANSWER_TIMEOUT_MS = 2_000
_HOLD_S = ((0.3, 1.0), (0.5, 3.0), (10.0, 20.0))
"""A claimant holds a resource either shortly, or longer than a fault lasts: then its broker may be cut
off while it holds."""
_TAKING_SHARE = 0.01
"""Share of the claims that take the resource from its owner."""
_STALE_SHARE = 0.1
"""Share of the claims that name an outdated generation."""
_RESTLESS_SHARE = 0.4
"""Share of the grants whose owner sleeps and cuts its connections; the others last longer than a fault."""
_SLEEP_SHARE = 0.01
"""Share of the steps of a restless owner after which it sleeps for longer than its session."""
_CUT_SHARE = 0.02
"""Share of the steps of a restless owner that cut its connection, to resume on another one at once."""
_READ_SHARE = 0.7
_TRESPASS_SHARE = 0.5
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_FENCED = (ErrorCode.OWNERSHIP_FENCED, ErrorCode.PRODUCER_FENCED)
_ACTIONS = {
    RequestKind.CLAIM: Action.CLAIM,
    RequestKind.RENEW: Action.RENEW,
    RequestKind.RESUME: Action.RESUME,
    RequestKind.RELEASE: Action.RELEASE,
}


@dataclass(slots=True)
class Tenure:
    """A grant that this client has, when it was last confirmed, and in which conversation."""

    generation: int
    incarnation: int
    release_at_s: float
    conversation: Conversation | None = None
    confirmed_s: float = -math.inf
    is_restless: bool = False
    is_detached: bool = False


class RivalClaimant:
    """Claims a name or a partition, among others that want the same. `checker.clients.crew` runs it.

    A claimant with `access` to read also reads the partition, as the only reader of its group; one that
    claims as an exclusive producer (the group PRODUCERS_GROUP) wants the whole topic.
    """

    leave_share = 0.2
    """Share of the refused claims after which it asks the brokers again which of them decides."""
    names_generations = True
    """Whether some of its claims name a generation, present or outdated."""

    def __init__(
        self,
        name: str,
        settings: CheckSettings,
        group: str,
        resource: OwnedResource,
        access: Access = Access.WRITE,
    ) -> None:
        self.name = name
        self._settings = settings
        self._recorder = settings.recorder
        self._resource = resource
        is_written = isinstance(resource, TopicPartition) and access is Access.WRITE
        self._label = str(resource) if is_written else f"{group}/{resource}"
        self._read_place = resource if isinstance(resource, TopicPartition) and not is_written else None
        self._session_s = settings.session_ms / 1000
        self._connection = self._connect()
        self._dialect = _dialect(group, f"{name}-{uuid.uuid4()}", settings.session_ms, access)
        self._names_generations = self.names_generations and group != PRODUCERS_GROUP
        self._node = NO_NODE
        self._left = NO_NODE
        """The broker that this client asked before: another may have replaced it, without its knowledge."""
        self._generation = IF_FREE
        """The generation that the last refusal named."""
        self._taken: set[int] = set()
        """The generations that this client has named to take the resource."""
        self._tenure: Tenure | None = None
        self._conversation: Conversation | None = None
        self._conversations = NO_CONNECTION
        self._refused_in: Conversation | None = None
        """The conversation in which the last claim was refused."""
        self._asleep_until_s = 0.0

    def step(self) -> None:
        if self._recorder.now_s() < self._asleep_until_s:
            return
        if self._node == NO_NODE:
            self._find_node()
            return
        tenure = self._tenure
        if tenure is None:
            self._claim_or_trespass()
        elif tenure.is_restless and random.random() < _SLEEP_SHARE:
            self._asleep_until_s = self._recorder.now_s() + random.uniform(1.0, 2.0) * self._session_s
        elif tenure.is_restless and random.random() < _CUT_SHARE:
            self._cut(tenure)
        elif tenure.release_at_s < self._recorder.now_s():
            self._ask(RequestKind.RELEASE, tenure)
        elif tenure.is_detached:
            self._ask(RequestKind.RESUME, tenure)
        elif self._read_place is not None and random.random() < _READ_SHARE:
            self._read(self._read_place, tenure)
        else:
            self._ask(RequestKind.RENEW, tenure)

    def close(self) -> None:
        if self._tenure is not None:  # Others, which have not ended yet, may be granted what this one had.
            self._record(Action.RELEASE, self._recorder.now_s(), Outcome.UNKNOWN, self._tenure.incarnation)
        self._connection.close()

    def _connect(self) -> Connection:
        properties = {**self._settings.properties(), "client.id": self.name}
        return Connection(self._settings.bootstrap, properties)

    def _cut(self, tenure: Tenure) -> None:
        """Close the connection, which may free the resource."""
        now_s = self._recorder.now_s()
        self._record(Action.RELEASE, now_s, Outcome.UNKNOWN, tenure.incarnation)
        self._connection.close()
        self._connection = self._connect()
        self._leave()

    # The broker that decides --------------------------------------------------------------------------

    def _find_node(self) -> None:
        """Ask a random broker which broker decides: each may have another opinion."""
        if isinstance(self._resource, TopicPartition):
            self._connection.metadata.want(self._resource.topic)
            self._connection.metadata.doubt(random.choice((NO_NODE, self._left)))
            self._connection.poll(_SEARCH_TIMEOUT_MS)
            self._node = self._connection.metadata.leader(*self._resource)
            return
        group = self._dialect.group
        node = random.choice([ANY_NODE, *self._connection.metadata.nodes])
        search = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
        response = self._connection.ask(node, search, _SEARCH_TIMEOUT_MS)
        # Up to version 3 the response has one coordinator, later a list of them.
        answers = [(response.error_code, response.node_id)]
        answers += [(found.error_code, found.node_id) for found in response.coordinators]
        for error_code, node_id in answers:
            if error_code == ErrorCode.NONE and node_id in self._connection.metadata.nodes:
                self._node = node_id
        if self._node == NO_NODE:
            self._connection.metadata.renew()
            self._connection.poll(_SEARCH_TIMEOUT_MS)

    # Calls --------------------------------------------------------------------------------------------

    def _claim_or_trespass(self) -> None:
        conversation = self._connection.conversation(self._node)
        is_refused = conversation is not None and conversation is self._refused_in
        if self._read_place is not None and is_refused and random.random() < _TRESPASS_SHARE:
            self._trespass(self._read_place)
        elif self._names_generations and self._generation > 1 and random.random() < _STALE_SHARE:
            self._claim(random.randrange(1, self._generation), is_stale=True)
        elif self._names_generations and self._generation > 0 and random.random() < _TAKING_SHARE:
            self._claim(self._generation)
        else:
            self._claim(IF_FREE)

    def _claim(self, generation: int, *, is_stale: bool = False) -> None:
        if generation in self._taken:
            return  # If it was granted, and the answer was lost, the claim would only be repeated.
        if generation != IF_FREE and not is_stale:
            self._taken.add(generation)
        self._ask(RequestKind.CLAIM, None, generation, is_stale=is_stale)

    def _ask(
        self,
        kind: RequestKind,
        tenure: Tenure | None,
        generation: int = IF_FREE,
        *,
        is_stale: bool = False,
    ) -> None:
        incarnation = NO_GRANT
        if tenure is not None:
            generation, incarnation = tenure.generation, tenure.incarnation
        wanted = [ResourceRequest(kind, self._resource, generation, incarnation)]
        request = request_for(self._dialect, wanted, _ANSWER_TIMEOUT_MS)
        is_taking = kind is RequestKind.CLAIM and generation != IF_FREE and not is_stale
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
            self._confirmed(_ACTIONS[kind], asked_s, standing, is_taking=is_taking, is_stale=is_stale)
        else:
            self._refused(_ACTIONS[kind], asked_s, incarnation, code, is_taking=is_taking)

    def _read(self, partition: TopicPartition, tenure: Tenure) -> None:
        """Read the first batch, which is an owned read only on the connection that has the grant."""
        conversation = self._connection.conversation(self._node)
        if conversation is None or conversation is not tenure.conversation:
            tenure.is_detached = True
            return
        asked_s = self._recorder.now_s()
        try:
            has_read = self._has_read(partition)
        except Exception:
            self._record(Action.READ, asked_s, Outcome.UNKNOWN, tenure.incarnation)
            self._leave()
            raise
        if has_read and self._connection.conversation(self._node) is conversation:
            self._record(Action.READ, asked_s, Outcome.DONE, tenure.incarnation, self._settings.session_ms)

    def _trespass(self, partition: TopicPartition) -> None:
        """Read the first batch without owning the partition, on a connection that has named the group."""
        conversation = self._connection.conversation(self._node)
        asked_s = self._recorder.now_s()
        has_read = self._has_read(partition)
        if has_read and self._connection.conversation(self._node) is conversation:
            self._record(Action.INTRUDE, asked_s, Outcome.DONE, NO_GRANT)

    def _has_read(self, partition: TopicPartition) -> bool:
        info = self._connection.metadata.topics.get(partition.topic)
        if info is None:
            return False
        first = FetchPartition(partition=partition.partition, fetch_offset=0, partition_max_bytes=1)
        topic = FetchTopic(topic=partition.topic, topic_id=info.id, partitions=[first])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic], forgotten_topics_data=[])
        return _has_records(self._connection.ask(self._node, request))

    # Answers ------------------------------------------------------------------------------------------

    def _confirmed(
        self,
        action: Action,
        asked_s: float,
        standing: ResourceStanding,
        *,
        is_taking: bool,
        is_stale: bool,
    ) -> None:
        conversation = self._connection.conversation(self._node)
        if conversation is not self._conversation:
            self._conversation = conversation
            self._conversations += 1
        self._record(
            action,
            asked_s,
            Outcome.DONE,
            standing.incarnation,
            self._settings.session_ms,
            is_taking=is_taking,
            is_stale=is_stale,
            fence_offset=standing.fence_offset if action is Action.CLAIM else NO_OFFSET,
            connection=NO_CONNECTION if conversation is None else self._conversations,
        )
        grant = standing.generation, standing.incarnation
        notice = Notice(self.name, self._node, self._dialect, self._resource, *grant)
        self._settings.board.post(self._label, notice)
        if self._tenure is None:
            self._tenure = self._begun(*grant)
        self._tenure.conversation = conversation
        self._tenure.confirmed_s = self._recorder.now_s()
        self._tenure.is_detached = False

    def _begun(self, generation: int, incarnation: int) -> Tenure:
        """How this client uses a new grant."""
        release_at_s = self._recorder.now_s() + random.uniform(*random.choice(_HOLD_S))
        is_restless = random.random() < _RESTLESS_SHARE
        return Tenure(generation, incarnation, release_at_s, is_restless=is_restless)

    def _released(self, asked_s: float, incarnation: int, code: ErrorCode) -> None:
        if code is ErrorCode.NONE or code in _FENCED:
            outcome = Outcome.DONE if code is ErrorCode.NONE else Outcome.REFUSED
            self._record(Action.RELEASE, asked_s, outcome, incarnation)
            self._tenure = None
            return
        self._record(Action.RELEASE, asked_s, Outcome.UNKNOWN, incarnation)
        self._leave()

    def _refused(
        self, action: Action, asked_s: float, incarnation: int, code: ErrorCode, *, is_taking: bool
    ) -> None:
        if code in _FENCED and self._tenure is not None:
            self._record(action, asked_s, Outcome.REFUSED, incarnation)
            self._tenure = None
        elif code is ErrorCode.REQUEST_TIMED_OUT and action is Action.CLAIM:
            # The grant stands, and is not confirmed: the session ends it.
            self._record(action, asked_s, Outcome.UNKNOWN, NO_GRANT, is_taking=is_taking)
            self._leave()
        elif self._tenure is None:
            self._record(action, asked_s, Outcome.REFUSED, NO_GRANT)
            self._refused_in = self._connection.conversation(self._node)
        if code is ErrorCode.OWNERSHIP_DETACHED and self._tenure is not None:
            self._tenure.is_detached = True
        elif code in _MOVED or (self._tenure is None and random.random() < self.leave_share):
            self._leave()

    def _leave(self) -> None:
        """Look for the broker again, and resume there."""
        if self._node != NO_NODE:
            self._left, self._node = self._node, NO_NODE
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
        is_stale: bool = False,
        fence_offset: int = NO_OFFSET,
        connection: int = NO_CONNECTION,
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
                fence_offset,
                is_stale,
                connection,
                self._node,
            )
        )


def _dialect(group: str, owner_id: str, session_ms: int, access: Access) -> ClaimDialect:
    if group == PRODUCERS_GROUP:
        mode = ProducerAccessMode.EXCLUSIVE
        return ProducerAccessDialect(owner_id, session_ms, mode, covers_topic=True)
    return OwnDialect(group, owner_id, session_ms, access)


def _has_records(response: FetchResponse) -> bool:
    """Whether the only partition was read without an error, and has records."""
    rows = [row for topic in response.responses for row in topic.partitions]
    return any(row.error_code == ErrorCode.NONE and bool(row.records) for row in rows)
