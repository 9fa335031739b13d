"""Bugs of long answers, long requests and waiting fetches, and of the memory of requests."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.handlers import metadata
from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.network.framing import FrameAssembler
from holdfast_log.broker.network.memory import IncompleteFrames
from holdfast_log.broker.replication.fetch_sessions import Watchers
from holdfast_log.broker.requests import dispatch
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.coordinator.groups.member_memory import MemberMemory
from holdfast_log.coordinator.groups.store import GroupStore
from tests.sim.mutation import Mutation, Patch


def _answer_twice() -> Sequence[Patch]:
    return [(metadata, "named_once", lambda wanted: wanted)]


def _make_at_once() -> Sequence[Patch]:
    return [(LongAnswers, "may_go_on", lambda self, price: True)]


def _keep_deaf_clients() -> Sequence[Patch]:
    return [(LongAnswers, "_make_room", lambda self: None)]


def _charge_what_is_announced() -> Sequence[Patch]:
    extend = FrameAssembler._extend

    def mutant(self: FrameAssembler, step: int) -> None:
        assert self._frame is not None
        extend(self, len(self._frame))

    return [(FrameAssembler, "_extend", mutant)]


def _wait_for_promises() -> Sequence[Patch]:
    return [(IncompleteFrames, "_sweep", lambda self: None)]


def _hold_all_members() -> Sequence[Patch]:
    return [(MemberMemory, "has_room", lambda self, size: True)]


def _hold_all_offsets() -> Sequence[Patch]:
    return [(GroupStore, "has_room_for_offset", lambda self, group_id, partition, metadata: True)]


def _handle_whole() -> Sequence[Patch]:
    return [(dispatch, "parts_of", lambda handler, request: None)]


def _overtake() -> Sequence[Patch]:
    return [(ServerConnection, "hold", lambda self: None)]


def _keep_turns() -> Sequence[Patch]:
    return [(LongAnswers, "suspend", lambda self, answer: None)]


def _look_at_all() -> Sequence[Patch]:
    return [(Watchers, "sleep", lambda self, partition, needed: None)]


RARE: tuple[Mutation, ...] = (
    Mutation(
        "topic-answered-twice",
        "Metadata describes a topic as often as the request names it",
        _answer_twice,
    ),
    Mutation(
        "long-answer-made-at-once",
        "a long answer is made in one turn of the reactor, while all other clients wait",
        _make_at_once,
    ),
    Mutation(
        "unread-answers-kept",
        "answers that clients do not read are kept without a limit for all connections together",
        _keep_deaf_clients,
    ),
    Mutation(
        "memory-charged-on-announcement",
        "a request takes its memory when its size arrives, so that a few promises stop all large requests",
        _charge_what_is_announced,
    ),
    Mutation(
        "incomplete-requests-kept",
        "a request that is never complete keeps its memory",
        _wait_for_promises,
    ),
    Mutation(
        "subscriptions-without-limit",
        "the subscriptions of all groups together take as much memory as clients like",
        _hold_all_members,
    ),
    Mutation(
        "offsets-without-limit",
        "committed offsets take as much memory as clients like",
        _hold_all_offsets,
    ),
    Mutation(
        "long-request-handled-whole",
        "a request of many rows is handled in one turn of the reactor",
        _handle_whole,
    ),
    Mutation(
        "long-request-overtaken",
        "a later request of a connection is handled before the last parts of a long one",
        _overtake,
    ),
    Mutation(
        "waiting-sessions-looked-at",
        "each write looks at all waiting fetches of sessions, though it brings too few bytes for them",
        _look_at_all,
    ),
    Mutation(
        "waiting-answer-keeps-its-turn",
        "a long answer that waits for something else is given turns, without a pause",
        _keep_turns,
    ),
)
