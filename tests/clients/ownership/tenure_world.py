"""Tenures without broker or network: who leads, which connections there are, and the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from clients.connection.connection import Connection
from clients.connection.conversation import Conversation
from clients.connection.link import Call, Reply
from clients.ownership.events import OwnedResource, OwnershipEvent, TenureState, split
from clients.ownership.tenure import Tenure, TenureSettings
from clients.ownership.tenures import Tenures
from clients.ownership.ways import OwnWay, Way
from protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from protocol.messages.ownership import IF_FREE, NO_PARTITION, OwnResponse, ResourceStanding
from protocol.topic_partition import TopicPartition

LOG = TopicPartition("log", 0)
OTHER = TopicPartition("log", 1)
THIRD = TopicPartition("log", 2)
SESSION_MS = 9000
SETTINGS = TenureSettings(SESSION_MS, retry_backoff_ms=100, queued_wait_ms=1000)


class Lines:
    """The part of a Connection that a tenure sees: who leads, and which conversations there are."""

    def __init__(self) -> None:
        self.metadata = self
        self.leaders = {LOG: 1, OTHER: 1, THIRD: 1}
        self.renewals = 0
        self.conversations: dict[int, Conversation] = {}
        self.connect(1)

    def connect(self, node: int) -> None:
        """Have a conversation with this broker that is not the one before."""
        self.conversations[node] = Conversation("anna", 1000)

    def conversation(self, node: int) -> Conversation | None:
        return self.conversations.get(node)

    def want(self, topic: str) -> None:
        assert topic == "log"

    def leader(self, topic: str, partition: int) -> int:
        return self.leaders[TopicPartition(topic, partition)]

    def renew(self) -> None:
        self.renewals += 1


def tenures_of(
    generations: Mapping[OwnedResource, int],
    lines: Lines | None = None,
    wait_ms: int = 0,
    way: Way | None = None,
) -> Tenures:
    """Tenures of these resources; they are anna's in the group app."""
    connection = cast("Connection", lines or Lines())
    way = way or OwnWay("app", "anna", SESSION_MS)
    return Tenures(connection, way, generations, SETTINGS, wait_ms=wait_ms, answer_timeout_ms=5000)


class World:
    """Tenures, their connections, and the time. `resources` are those of one owner, each with the generation
    that its claim names; most have one, which is `tenure`."""

    def __init__(
        self,
        *resources: OwnedResource,
        generation: int = IF_FREE,
        wait_ms: int = 0,
        way: Way | None = None,
    ) -> None:
        self.lines = Lines()
        self.now_ms = 1000
        self._told: list[OwnershipEvent] = []
        self.tenures = tenures_of(dict.fromkeys(resources or [LOG], generation), self.lines, wait_ms, way)

    @property
    def tenure(self) -> Tenure:
        """The first."""
        return next(iter(self.tenures.tenures.values()))

    def calls(self) -> list[Call]:
        """The calls that are due now."""
        return self.tenures.calls(self.now_ms)

    def call(self) -> Call:
        """The one call that is due now."""
        (call,) = self.calls()
        return call

    def next_event_ms(self) -> int | None:
        """When there is something to do, all events being told."""
        self._told += self.tenures.take_events()
        return self.tenures.next_event_ms(self.now_ms)

    def answer(self, call: Call, error: int = 0, **fields: Any) -> None:
        """Answer a call about one resource."""
        (resource,) = named_in(call)
        self.answer_all(call, standing(resource, error, **fields))

    def answer_all(self, call: Call, *standings: ResourceStanding) -> None:
        response = OwnResponse(group="app", error_code=0, resources=list(standings))
        self.reply(Reply(call, response, conversation=self.lines.conversations[call.node]))

    def lose(self, call: Call, error: Exception) -> None:
        """Have a call end without an answer."""
        self.reply(Reply(call, error=error))

    def reply(self, reply: Reply) -> None:
        assert self.tenures.handle(reply, self.now_ms)

    def find_coordinator(self, node: int) -> None:
        """Answer the one call that is due, which asks for the coordinator of the group."""
        search = self.call()
        assert isinstance(search.request, FindCoordinatorRequest)
        found = FoundCoordinator(key="app", node_id=node, host="b", port=1, error_code=0)
        self.reply(Reply(search, FindCoordinatorResponse(coordinators=[found])))

    def grant(self, incarnation: int = 7) -> None:
        """Grant what is claimed now."""
        call = self.call()
        grant: dict[str, Any] = {"generation": 1, "incarnation": incarnation, "fence_offset": 40}
        self.answer_all(call, *(standing(each, **grant) for each in named_in(call)))

    def states(self) -> list[TenureState]:
        """What has been told since the last call."""
        told, self._told = self._told + self.tenures.take_events(), []
        return [event.state for event in told]


def named_in(call: Call) -> list[OwnedResource]:
    """The resources that a call is about."""
    request: Any = call.request
    return [
        row.name if row.partition == NO_PARTITION else TopicPartition(row.name, row.partition)
        for row in request.resources
    ]


def standing(resource: OwnedResource, error: int = 0, **fields: Any) -> ResourceStanding:
    """How the asker stands with a resource."""
    name, partition = split(resource)
    return ResourceStanding(name=name, partition=partition, error_code=error, **fields)
