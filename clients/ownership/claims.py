"""The claims of one owner: sent in ascending order, granted all or none, and renewed together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import ClosedError
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.ownership.claim import ClaimSettings, OwnershipClaim, error_of
from holdfast_log.clients.ownership.claim_requests import (
    ClaimDialect,
    RequestKind,
    ResourceRequest,
    request_for,
    standings_in,
)
from holdfast_log.clients.ownership.deciders import CoordinatorDecider, Decider, LeaderDecider
from holdfast_log.clients.ownership.events import ClaimState, OwnedResource, OwnershipEvent, split
from holdfast_log.protocol.messages.ownership import IF_FREE
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(slots=True, eq=False)
class _JointRequest:
    """Claims that send a broker the same kind of request together."""

    owner: OwnershipClaims
    node: int
    kind: RequestKind
    claims: list[OwnershipClaim]
    due_ms: int


class OwnershipClaims:
    """The claims of one owner, each with the generation that it names, in ascending order of resources.

    The host sends `calls`, hands in replies by `handle`, and asks again at `next_event_ms`. A broker may take
    `answer_timeout_ms` to answer a claim.

    All or none: resources with the same decider are claimed in one request, which that broker grants or
    refuses as a whole, and the deciders are asked one after the other. If one refuses, what the others have
    granted is released.

    While a claim waits in a queue, this owner holds the resources before it, and must hold none after it. So
    one request claims only neighbours in the order, and a resource that another owner has is claimed in a
    request of its own. Two owners that wait for the same resources then never wait for each other.
    """

    def __init__(
        self,
        connection: Connection,
        dialect: ClaimDialect,
        generations: Mapping[OwnedResource, int],
        settings: ClaimSettings,
        *,
        wait_ms: int = 0,
        answer_timeout_ms: int,
    ) -> None:
        if not generations:
            raise ValueError("no resource to own: name at least one")
        self._dialect = dialect
        self._answer_timeout_ms = answer_timeout_ms
        # A call without an answer for so long closes its connection: a longer wait would end the session.
        self._call_timeout_ms = max(answer_timeout_ms, dialect.session_timeout_ms)
        self._held_back: dict[int, _JointRequest] = {}
        """By broker, the renewal whose answer the broker holds back."""
        self._coordinator = CoordinatorDecider(connection, dialect.group, settings.retry_backoff_ms)
        self._connection = connection
        self._settings = settings
        self._wait_ms = wait_ms
        self.by_resource: dict[OwnedResource, OwnershipClaim] = {}
        for resource in sorted(generations, key=split):
            self.by_resource[resource] = self._claim(resource, generations[resource])

    def _claim(self, resource: OwnedResource, generation: int) -> OwnershipClaim:
        decider: Decider = self._coordinator
        if not isinstance(resource, str):
            decider = LeaderDecider(self._connection, resource)
        return OwnershipClaim(
            self._connection,
            decider,
            resource,
            self._settings,
            generation=generation,
            wait_ms=self._wait_ms,
        )

    # For the host -------------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether all resources are held, on the connections that stand now."""
        return all(claim.is_held for claim in self.by_resource.values())

    def is_valid(self, now_ms: int) -> bool:
        """Whether all are held, and every broker has received a request within the session timeout."""
        return all(claim.is_valid(now_ms) for claim in self.by_resource.values())

    @property
    def has_ended(self) -> bool:
        """Whether every claim is lost, refused or released."""
        return all(claim.has_ended for claim in self.by_resource.values())

    @property
    def error(self) -> Exception | None:
        """Why a resource was lost or refused: the first one in the order."""
        ended = (ClaimState.LOST, ClaimState.REFUSED)
        return next((error_of(each) for each in self.by_resource.values() if each.state in ended), None)

    @property
    def last_error(self) -> Exception | None:
        """Why the last attempt for one of the resources failed, if another attempt may succeed."""
        errors = (claim.last_error for claim in self.by_resource.values() if not claim.is_held)
        return next((error for error in errors if error is not None), None)

    def waits_for(self) -> str:
        """Why the resources are not all held yet, in words."""
        found = (claim.waits_for() for claim in self.by_resource.values() if not claim.is_held)
        return next((why for why in found if why), "no broker has answered yet")

    def fence(self) -> OwnerFence:
        """The fence of all partitions; names have none.

        Raises why a partition was lost or refused, ClosedError while one is not granted, and ValueError
        without partitions.
        """
        tokens: dict[TopicPartition, int] = {}
        for resource, claim in self.by_resource.items():
            if claim.has_ended:
                raise error_of(claim)
            if isinstance(resource, str):
                continue
            if claim.grant is None or claim.grant.incarnation < 0:
                raise ClosedError(f"{resource} is not granted, so it has no fence yet")
            tokens[resource] = claim.grant.incarnation
        if not tokens:
            raise ValueError("only partitions have a fence: for names, use a token")
        return OwnerFence(tokens, self._dialect.secret)

    def add(self, resource: OwnedResource) -> None:
        """Claim one more resource, if it is free. It must come after all others in the order."""
        assert split(resource) > split(next(reversed(self.by_resource)))
        self.by_resource[resource] = self._claim(resource, IF_FREE)

    def release(self) -> None:
        """Release all resources."""
        for claim in self.by_resource.values():
            claim.release()

    def take_events(self) -> list[OwnershipEvent]:
        """The events since the last call."""
        events: list[OwnershipEvent] = []
        for claim in self.by_resource.values():
            events += claim.events
            claim.events = []
        return events

    # Requests -----------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        """The calls to send now."""
        for claim in self.by_resource.values():
            claim.advance(now_ms)
        self._release_if_refused()
        calls: list[Call] = []
        due = [joint for joint in self._joint_requests() if joint.due_ms <= now_ms]
        for joint in sorted(due, key=lambda each: each.kind is RequestKind.RENEW):
            if joint.kind is not RequestKind.RENEW and joint.node in self._held_back:
                calls.append(self._interruption(self._held_back.pop(joint.node)))
            calls.append(self._send(joint, now_ms))
        return calls + self._coordinator.calls(now_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        """When `calls` has something to send even if no reply comes; now if there are events to take."""
        if any(claim.events for claim in self.by_resource.values()):
            return now_ms
        times: list[int | None] = [max(now_ms, joint.due_ms) for joint in self._joint_requests()]
        times.append(self._coordinator.next_event_ms())
        times += (claim.expires_at_ms for claim in self.by_resource.values())
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def _send(self, joint: _JointRequest, now_ms: int) -> Call:
        is_alone = len(joint.claims) == 1
        requests = [claim.request(now_ms, is_alone=is_alone) for claim in joint.claims]
        call = self._call(requests, joint)
        for claim in joint.claims:
            claim.sent(call, now_ms)
        if joint.kind is RequestKind.RENEW and any(request.wait_ms for request in requests):
            self._held_back[joint.node] = joint
        return call

    def _interruption(self, held_back: _JointRequest) -> Call:
        """A call that makes the broker answer the renewal that it holds back.

        A broker answers in the order of requests, so the answer to the next one would wait behind it.
        """
        probe = ResourceRequest(RequestKind.PROBE, held_back.claims[0].resource)
        return self._call([probe], _JointRequest(self, held_back.node, RequestKind.PROBE, [], 0))

    def _call(self, requests: list[ResourceRequest], joint: _JointRequest) -> Call:
        request = request_for(self._dialect, requests, self._answer_timeout_ms)
        return Call(joint.node, request, timeout_ms=self._call_timeout_ms, tag=joint)

    def _joint_requests(self) -> Iterator[_JointRequest]:
        """The requests to send, with their times. Claims with the same decider and kind share one, which is
        due when the first of them is."""
        together: dict[tuple[int, RequestKind], list[OwnershipClaim]] = {}
        for claim in self.by_resource.values():
            kind = claim.due_request
            if kind is not None and kind is not RequestKind.CLAIM:
                node = claim.decider.node()
                if node != NO_NODE:
                    together.setdefault((node, kind), []).append(claim)
        for (node, kind), claims in together.items():
            size = self._dialect.resources_max if kind is RequestKind.RESUME else len(claims)
            for start in range(0, len(claims), size):
                some = claims[start : start + size]
                yield _JointRequest(self, node, kind, some, min(claim.due_ms for claim in some))
        claimed = self._next_claimed()
        if claimed:
            due_ms = max(claim.due_ms for claim in claimed)
            yield _JointRequest(self, claimed[0].decider.node(), RequestKind.CLAIM, claimed, due_ms)

    def _next_claimed(self) -> list[OwnershipClaim]:
        """The resources to claim in one request; none while those before them are not granted yet."""
        wanting = (ClaimState.CLAIMING, ClaimState.QUEUED)
        wanted = [claim for claim in self.by_resource.values() if claim.state in wanting]
        if not wanted or wanted[0].due_request is not RequestKind.CLAIM:
            return []
        nodes = [claim.decider.node() for claim in wanted]
        may_queue = any(claim.may_queue for claim in wanted)
        if nodes[0] == NO_NODE or (NO_NODE in nodes and not may_queue):
            return []
        if wanted[0].queues_alone:
            return wanted[:1]
        claimed: list[OwnershipClaim] = []
        for claim, node in zip(wanted, nodes, strict=True):
            if node == nodes[0] and claim.due_request is RequestKind.CLAIM and not claim.queues_alone:
                claimed.append(claim)
            elif may_queue:
                break
        return claimed[: self._dialect.resources_max]

    # Answers ------------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply. False if it does not belong to one of these calls."""
        joint = reply.call.tag
        if isinstance(joint, _JointRequest) and joint.owner is self:
            self._handle(joint, reply, now_ms)
        elif not self._is_coordinator_found(reply, now_ms):
            return False
        self._release_if_refused()
        return True

    def _handle(self, joint: _JointRequest, reply: Reply, now_ms: int) -> None:
        if self._held_back.get(joint.node) is joint:
            del self._held_back[joint.node]
        if reply.response is None:
            assert reply.error is not None
            for claim in joint.claims:
                if claim.awaits(reply.call):
                    claim.not_answered(reply.error, now_ms)
            return
        standings = standings_in(reply.response, [claim.resource for claim in joint.claims])
        for claim, standing in zip(joint.claims, standings, strict=True):
            if claim.awaits(reply.call):
                claim.answered(standing, joint.node, reply.conversation, now_ms)

    def _is_coordinator_found(self, reply: Reply, now_ms: int) -> bool:
        """Whether the reply answers the search for the coordinator; claims of names fail if it failed."""
        try:
            return self._coordinator.handle(reply, now_ms)
        except Exception as error:
            for claim in self.by_resource.values():
                if claim.decider is self._coordinator:
                    claim.fail(error)
            return True

    def _release_if_refused(self) -> None:
        if any(claim.state is ClaimState.REFUSED for claim in self.by_resource.values()):
            self.release()
