"""Claims without broker or network: the test sets leaders, connections and the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.conversation import Conversation
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.ownership.claim import ClaimSettings, OwnershipClaim
from holdfast_log.clients.ownership.claim_requests import ClaimDialect, OwnDialect
from holdfast_log.clients.ownership.claims import OwnershipClaims
from holdfast_log.clients.ownership.events import ClaimState, OwnedResource, OwnershipEvent, split
from holdfast_log.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from holdfast_log.protocol.messages.ownership import IF_FREE, NO_PARTITION, OwnResponse, ResourceStanding
from holdfast_log.protocol.topic_partition import TopicPartition

LOG = TopicPartition("log", 0)
OTHER = TopicPartition("log", 1)
THIRD = TopicPartition("log", 2)
SESSION_MS = 9000
SETTINGS = ClaimSettings(SESSION_MS, retry_backoff_ms=100, queued_wait_ms=1000)


class Lines:
    """The part of a Connection that a claim uses: leaders and conversations."""

    def __init__(self) -> None:
        self.metadata = self
        self.leaders = {LOG: 1, OTHER: 1, THIRD: 1}
        self.renewals = 0
        self.conversations: dict[int, Conversation] = {}
        self.connect(1)

    def connect(self, node: int) -> None:
        """Replace the conversation with this broker by a new one."""
        self.conversations[node] = Conversation("anna", 1000)

    def conversation(self, node: int) -> Conversation | None:
        return self.conversations.get(node)

    def standing(self, node: int) -> str:
        return f"asked about node {node}"

    def want(self, topic: str) -> None:
        assert topic == "log"

    def leader(self, topic: str, partition: int) -> int:
        return self.leaders[TopicPartition(topic, partition)]

    def doubt(self, node: int) -> None:
        self.renewals += 1

    def doubt_leader(self, topic: str, partition: int) -> None:
        self.renewals += 1

    def renew(self) -> None:
        self.renewals += 1


def claims_of(
    generations: Mapping[OwnedResource, int],
    lines: Lines | None = None,
    wait_ms: int = 0,
    dialect: ClaimDialect | None = None,
) -> OwnershipClaims:
    """Claims of these resources by the owner anna in the group `app`."""
    connection = cast("Connection", lines or Lines())
    dialect = dialect or OwnDialect("app", "anna", SESSION_MS)
    return OwnershipClaims(
        connection, dialect, generations, SETTINGS, wait_ms=wait_ms, answer_timeout_ms=5000
    )


class World:
    """Claims, their connections, and the time. `resources` are those of one owner, each with the generation
    that its claim names; most have one, which is `claim`."""

    def __init__(
        self,
        *resources: OwnedResource,
        generation: int = IF_FREE,
        wait_ms: int = 0,
        dialect: ClaimDialect | None = None,
    ) -> None:
        self.lines = Lines()
        self.now_ms = 1000
        self._told: list[OwnershipEvent] = []
        self.claims = claims_of(dict.fromkeys(resources or [LOG], generation), self.lines, wait_ms, dialect)

    @property
    def claim(self) -> OwnershipClaim:
        """The first claim."""
        return next(iter(self.claims.by_resource.values()))

    def calls(self) -> list[Call]:
        """The calls that are due now."""
        return self.claims.calls(self.now_ms)

    def call(self) -> Call:
        """The one call that is due now."""
        (call,) = self.calls()
        return call

    def next_event_ms(self) -> int | None:
        """Time at which the next call is due, once all events are delivered."""
        self._told += self.claims.take_events()
        return self.claims.next_event_ms(self.now_ms)

    def answer(self, call: Call, error: int = 0, **fields: Any) -> None:
        """Answer a call about one resource."""
        (resource,) = named_in(call)
        self.answer_all(call, standing(resource, error, **fields))

    def answer_all(self, call: Call, *standings: ResourceStanding) -> None:
        response = OwnResponse(group="app", error_code=0, resources=list(standings))
        self.reply(Reply(call, response, conversation=self.lines.conversations[call.node]))

    def lose(self, call: Call, error: Exception) -> None:
        """End a call without an answer."""
        self.reply(Reply(call, error=error))

    def reply(self, reply: Reply) -> None:
        assert self.claims.handle(reply, self.now_ms)

    def find_coordinator(self, node: int) -> None:
        """Answer the only due call, which looks up the group's coordinator."""
        search = self.call()
        assert isinstance(search.request, FindCoordinatorRequest)
        found = FoundCoordinator(key="app", node_id=node, host="b", port=1, error_code=0)
        self.reply(Reply(search, FindCoordinatorResponse(coordinators=[found])))

    def grant(self, incarnation: int = 7) -> None:
        """Grant the claims that are due now."""
        call = self.call()
        grant: dict[str, Any] = {"generation": 1, "incarnation": incarnation, "fence_offset": 40}
        self.answer_all(call, *(standing(each, **grant) for each in named_in(call)))

    def states(self) -> list[ClaimState]:
        """The events since the last call."""
        told, self._told = self._told + self.claims.take_events(), []
        return [event.state for event in told]


def named_in(call: Call) -> list[OwnedResource]:
    """The resources that a call names."""
    request: Any = call.request
    return [
        row.name if row.partition == NO_PARTITION else TopicPartition(row.name, row.partition)
        for row in request.resources
    ]


def standing(resource: OwnedResource, error: int = 0, **fields: Any) -> ResourceStanding:
    """The claimant's standing with a resource."""
    name, partition = split(resource)
    return ResourceStanding(name=name, partition=partition, error_code=error, **fields)
