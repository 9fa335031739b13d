"""The resources of one owner: claimed in order, all or none, and kept together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clients.connection.connection import Connection
from clients.connection.link import Call, Reply
from clients.connection.metadata import NO_NODE
from clients.ownership.claim import ClaimSettings, OwnershipClaim, error_of
from clients.ownership.claim_requests import (
    ClaimDialect,
    RequestKind,
    ResourceRequest,
    request_for,
    standings_in,
)
from clients.ownership.deciders import CoordinatorDecider, Decider, LeaderDecider
from clients.ownership.events import ClaimState, OwnedResource, OwnershipEvent, split


@dataclass(slots=True, eq=False)
class _JointRequest:
    """Those that ask a broker the same question together."""

    of: OwnershipClaims
    node: int
    question: RequestKind
    claims: list[OwnershipClaim]
    due_ms: int


class OwnershipClaims:
    """The resources, by what their claims name as generation, in ascending order.

    Its host sends `calls`, hands in replies by `handle`, and looks again at `next_event_ms`. An answer to a
    claim may take `answer_timeout_ms`.

    All or none: those that one broker decides about are claimed by one request, of which that broker grants
    all or none, broker after broker; where one is refused, those that were granted are released. A claim that
    may wait holds what comes before it while it does. So it takes nothing that comes after it: one request
    claims only what is next in the order, and what is owned by another it waits for alone. Two owners that
    wait for the same resources thus never wait for each other.
    """

    def __init__(
        self,
        connection: Connection,
        way: ClaimDialect,
        generations: Mapping[OwnedResource, int],
        settings: ClaimSettings,
        *,
        wait_ms: int = 0,
        answer_timeout_ms: int,
    ) -> None:
        if not generations:
            raise ValueError("no resource to own")
        self._way = way
        self._answer_timeout_ms = answer_timeout_ms
        # Where no answer comes the connection has to go: the session ends with silence.
        self._call_timeout_ms = max(answer_timeout_ms, way.session_timeout_ms)
        self._waiting: dict[int, _JointRequest] = {}
        """Of every broker, the renewal that waits there."""
        self._names_home = CoordinatorDecider(way.group, settings.retry_backoff_ms)
        self.by_resource: dict[OwnedResource, OwnershipClaim] = {}
        for resource in sorted(generations, key=split):
            home: Decider = self._names_home
            if not isinstance(resource, str):
                home = LeaderDecider(connection, resource)
            self.by_resource[resource] = OwnershipClaim(
                connection, home, resource, settings, generation=generations[resource], wait_ms=wait_ms
            )

    # What hosts ask -----------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether all are, on the connections that there are."""
        return all(claim.is_held for claim in self.by_resource.values())

    def is_valid(self, now_ms: int) -> bool:
        """Whether all are held, and no broker can have taken the owner for dead."""
        return all(claim.is_valid(now_ms) for claim in self.by_resource.values())

    @property
    def has_ended(self) -> bool:
        """Whether all have."""
        return all(claim.has_ended for claim in self.by_resource.values())

    @property
    def error(self) -> Exception | None:
        """Why one of them was lost or could not be had: the first that was."""
        ended = (ClaimState.LOST, ClaimState.REFUSED)
        return next((error_of(each) for each in self.by_resource.values() if each.state in ended), None)

    @property
    def last_error(self) -> Exception | None:
        """Why the last attempt for one of them brought nothing, where that may pass."""
        errors = (claim.last_error for claim in self.by_resource.values() if not claim.is_held)
        return next((error for error in errors if error is not None), None)

    def release(self) -> None:
        """Let go of all."""
        for claim in self.by_resource.values():
            claim.release()

    def take_events(self) -> list[OwnershipEvent]:
        """What has happened since the last call."""
        events: list[OwnershipEvent] = []
        for claim in self.by_resource.values():
            events += claim.events
            claim.events = []
        return events

    # Out ----------------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        """What to send now."""
        for claim in self.by_resource.values():
            claim.look(now_ms)
        self._release_if_refused()
        calls: list[Call] = []
        due = [each for each in self._joint_requests() if each.due_ms <= now_ms]
        for asking in sorted(due, key=lambda each: each.question is RequestKind.RENEW):
            if asking.question is not RequestKind.RENEW and asking.node in self._waiting:
                calls.append(self._interruption(self._waiting.pop(asking.node)))
            calls.append(self._call(asking, now_ms))
        return calls + self._names_home.calls(now_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        """When `calls` has something by itself, or events are to be told."""
        if any(claim.events for claim in self.by_resource.values()):
            return now_ms
        times: list[int | None] = [max(now_ms, each.due_ms) for each in self._joint_requests()]
        times.append(self._names_home.next_event_ms())
        times += (claim.gives_up_at_ms for claim in self.by_resource.values())
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def _call(self, asking: _JointRequest, now_ms: int) -> Call:
        is_alone = len(asking.claims) == 1
        asks = [claim.ask(now_ms, is_alone=is_alone) for claim in asking.claims]
        call = self._call_with(asks, asking)
        for claim in asking.claims:
            claim.asked(call, now_ms)
        if asking.question is RequestKind.RENEW and any(ask.wait_ms for ask in asks):
            self._waiting[asking.node] = asking
        return call

    def _interruption(self, waiting: _JointRequest) -> Call:
        """What has a renewal answered that waits at a broker: answers leave in order, and that to the next
        question would wait behind it."""
        ask = ResourceRequest(RequestKind.LOOK, waiting.claims[0].resource)
        return self._call_with([ask], _JointRequest(self, waiting.node, RequestKind.LOOK, [], 0))

    def _call_with(self, asks: list[ResourceRequest], asking: _JointRequest) -> Call:
        request = request_for(self._way, asks, self._answer_timeout_ms)
        return Call(asking.node, request, timeout_ms=self._call_timeout_ms, tag=asking)

    def _joint_requests(self) -> Iterator[_JointRequest]:
        """What there is to ask, and when. Who asks the same broker the same question asks with the first."""
        together: dict[tuple[int, RequestKind], list[OwnershipClaim]] = {}
        for claim in self.by_resource.values():
            question = claim.question
            if question is not None and question is not RequestKind.CLAIM:
                node = claim.home.node()
                if node != NO_NODE:
                    together.setdefault((node, question), []).append(claim)
        for (node, question), claims in together.items():
            size = self._way.together_max if question is RequestKind.RESUME else len(claims)
            for start in range(0, len(claims), size):
                some = claims[start : start + size]
                yield _JointRequest(self, node, question, some, min(claim.due_ms for claim in some))
        claimed = self._next_claimed()
        if claimed:
            due_ms = max(claim.due_ms for claim in claimed)
            yield _JointRequest(self, claimed[0].home.node(), RequestKind.CLAIM, claimed, due_ms)

    def _next_claimed(self) -> list[OwnershipClaim]:
        """Those that are to be claimed by one request; none while others come first."""
        wanting = (ClaimState.CLAIMING, ClaimState.QUEUED)
        wanted = [claim for claim in self.by_resource.values() if claim.state in wanting]
        if not wanted or wanted[0].question is not RequestKind.CLAIM:
            return []
        nodes = [claim.home.node() for claim in wanted]
        may_wait = any(claim.may_wait for claim in wanted)
        if nodes[0] == NO_NODE or (NO_NODE in nodes and not may_wait):
            return []
        if wanted[0].must_queue:
            return wanted[:1]
        claimed: list[OwnershipClaim] = []
        for claim, node in zip(wanted, nodes, strict=True):
            if node == nodes[0] and claim.question is RequestKind.CLAIM and not claim.must_queue:
                claimed.append(claim)
            elif may_wait:
                break
        return claimed[: self._way.together_max]

    # In -----------------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Take in a reply; whether it was to one of these calls."""
        asking = reply.call.tag
        if isinstance(asking, _JointRequest) and asking.of is self:
            self._handle(asking, reply, now_ms)
        elif not self._is_found(reply, now_ms):
            return False
        self._release_if_refused()
        return True

    def _handle(self, asking: _JointRequest, reply: Reply, now_ms: int) -> None:
        if self._waiting.get(asking.node) is asking:
            del self._waiting[asking.node]
        if reply.response is None:
            assert reply.error is not None
            for claim in asking.claims:
                if claim.awaits(reply.call):
                    claim.not_answered(reply.error, now_ms)
            return
        standings = standings_in(reply.response, [claim.resource for claim in asking.claims])
        for claim, standing in zip(asking.claims, standings, strict=True):
            if claim.awaits(reply.call):
                claim.answered(standing, asking.node, reply.conversation, now_ms)

    def _is_found(self, reply: Reply, now_ms: int) -> bool:
        """Whether the reply tells where names are decided about, or that nobody will tell."""
        try:
            return self._names_home.handle(reply, now_ms)
        except Exception as error:
            for claim in self.by_resource.values():
                if claim.home is self._names_home:
                    claim.fail(error)
            return True

    def _release_if_refused(self) -> None:
        if any(claim.state is ClaimState.REFUSED for claim in self.by_resource.values()):
            self.release()
