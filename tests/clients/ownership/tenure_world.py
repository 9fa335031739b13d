"""Tenures without broker or network: who leads, which connections there are, and the time."""

from __future__ import annotations

from typing import Any, cast

from clients.connection import Connection
from clients.link import Call, Reply
from clients.message import TopicPartition
from clients.ownership.events import TenureState
from clients.ownership.tenure import Tenure, TenureSettings
from clients.ownership.ways import OwnWay
from clients.wire import Wire
from protocol.messages.ownership import OwnResponse, ResourceStanding

LOG = TopicPartition("log", 0)
OTHER = TopicPartition("log", 1)
SESSION_MS = 9000
SETTINGS = TenureSettings(retry_backoff_ms=100, answer_timeout_ms=5000, queued_wait_ms=1000)


class Lines:
    """The part of a Connection that a tenure sees: who leads, and which conversations there are."""

    def __init__(self) -> None:
        self.metadata = self
        self.leaders = {LOG: 1, OTHER: 1}
        self.renewals = 0
        self.conversations: dict[int, Wire] = {}
        self.connect(1)

    def connect(self, node: int) -> None:
        """Have a conversation with this broker that is not the one before."""
        self.conversations[node] = Wire("anna", 1000)

    def conversation(self, node: int) -> Wire | None:
        return self.conversations.get(node)

    def want(self, topic: str) -> None:
        assert topic == "log"

    def leader(self, topic: str, partition: int) -> int:
        return self.leaders[TopicPartition(topic, partition)]

    def renew(self) -> None:
        self.renewals += 1


class World:
    """A tenure, its connections, and the time."""

    def __init__(self, resource: TopicPartition | str = LOG, **options: Any) -> None:
        self.lines = Lines()
        self.way = OwnWay("app", "anna", SESSION_MS)
        self.tenure = self.tenure_of(resource, **options)
        self.now_ms = 1000

    def tenure_of(self, resource: TopicPartition | str, **options: Any) -> Tenure:
        return Tenure(cast("Connection", self.lines), self.way, resource, SETTINGS, **options)

    def call(self) -> Call:
        """The one call that is due now."""
        (call,) = self.tenure.calls(self.now_ms)
        return call

    def answer(self, call: Call, error: int = 0, **fields: Any) -> None:
        standing = ResourceStanding(name="log", partition=0, error_code=error, **fields)
        response = OwnResponse(group="app", error_code=0, resources=[standing])
        conversation = self.lines.conversations[call.node]
        assert self.tenure.handle(Reply(call, response, conversation=conversation), self.now_ms)

    def grant(self) -> None:
        self.answer(self.call(), generation=1, incarnation=7, fence_offset=40)

    def states(self) -> list[TenureState]:
        events, self.tenure.events = self.tenure.events, []
        return [event.state for event in events]
