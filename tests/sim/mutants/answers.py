"""Bugs of long answers, long requests, floods of short ones, waiting fetches, and the memory of requests."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred

from holdfast_log.broker.handlers import metadata, renew_ownership
from holdfast_log.broker.handlers.resume_ownership import ResumeHandler
from holdfast_log.broker.network import framing, outgoing, rotation
from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.network.framing import FrameAssembler
from holdfast_log.broker.network.memory import IncompleteFrames
from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.broker.ownership import renewals
from holdfast_log.broker.replication import waiting
from holdfast_log.broker.replication.session_partitions import Watchers
from holdfast_log.broker.requests import answers, dispatch
from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.coordinator.controller import waiting_request
from holdfast_log.coordinator.groups.member_memory import MemberMemory
from holdfast_log.coordinator.groups.store import GroupStore
from holdfast_log.coordinator.zookeeper import call_queue
from tests.sim.mutation import Mutation, Patch

_MANY = 1_000_000_000
_LONG_S = 1000.0


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
    return [(GroupStore, "has_room_for_offset", lambda self, group_id, partition, metadata, stamp=None: True)]


def _handle_whole() -> Sequence[Patch]:
    return [(dispatch, "long_rows", lambda handler, request: None)]


def _overtake() -> Sequence[Patch]:
    return [(ServerConnection, name, lambda self: None) for name in ("hold", "go_on")]


def _keep_turns() -> Sequence[Patch]:
    return [(LongAnswers, "suspend", lambda self, answer: None)]


def _look_at_all() -> Sequence[Patch]:
    return [(Watchers, "sleep", lambda self, partition, needed: None)]


def _go_on_at_once() -> Sequence[Patch]:
    return [(Rotation, "at_once_s", lambda self, now_s: now_s + _LONG_S)]


def _take_whole_turns() -> Sequence[Patch]:
    return [(rotation, "SLICE_S", rotation.TURN_S)]


def _cut_all_frames() -> Sequence[Patch]:
    return [(framing, "FRAMES_MAX", _MANY)]


def _keep_small_answers_apart() -> Sequence[Patch]:
    return [(outgoing, "_SMALL_BYTES", 0)]


def _begin_all_answers() -> Sequence[Patch]:
    def mutant(self: LongAnswer) -> Deferred[None]:
        self._turn = Deferred()
        self._answers.enqueue(self)
        return self._turn

    return [(LongAnswer, "_pause", mutant)]


def _renew_all_at_once() -> Sequence[Patch]:
    return [(renew_ownership, "AT_ONCE", _MANY)]


def _wait_with_all_renewals() -> Sequence[Patch]:
    return [(renewals, "_WAITING_MAX", _MANY)]


def _resume_all_at_once() -> Sequence[Patch]:
    return [(ResumeHandler, "parts", ())]


def _park_all_fetches() -> Sequence[Patch]:
    return [(waiting, "OWNED_MAX", _MANY)]


def _decode_any_size() -> Sequence[Patch]:
    return [(dispatch, "_may_be_large", lambda connection, handler: True)]


def _alter_all_at_once() -> Sequence[Patch]:
    return [(answers, "ALTERED_TOGETHER", _MANY)]


def _be_late_at_once() -> Sequence[Patch]:
    return [(waiting_request, "_LATE_AT_ONCE", _MANY)]


def _take_all_from_zookeeper() -> Sequence[Patch]:
    return [(call_queue, "_CALLS_AT_ONCE", _MANY)]


RARE: tuple[Mutation, ...] = (
    Mutation(
        "altered-all-at-once",
        "a request that alters thousands of topics' settings begins all of them in one turn of the reactor",
        _alter_all_at_once,
    ),
    Mutation(
        "late-all-at-once",
        "a request to the controller with thousands of topics is answered in one turn once its time is up",
        _be_late_at_once,
    ),
    Mutation(
        "zookeeper-answers-at-once",
        "whatever ZooKeeper has answered meanwhile is handled in one turn of the reactor",
        _take_all_from_zookeeper,
    ),
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
    Mutation(
        "floods-served-on-arrival",
        "requests that clients have sent ahead are handled when they arrive, however many clients do that",
        _go_on_at_once,
    ),
    Mutation(
        "slices-as-long-as-turns",
        "a client that sends ahead waits for a whole turn of each client that does the same",
        _take_whole_turns,
    ),
    Mutation(
        "frames-cut-at-once",
        "all short requests that have been received become objects at once, ten times as large",
        _cut_all_frames,
    ),
    Mutation(
        "small-answers-apart",
        "each short answer that a client does not read is an object of its own, several times as large",
        _keep_small_answers_apart,
    ),
    Mutation(
        "long-answers-begun-ahead",
        "all requests for long answers that a client has sent ahead are begun, and keep what they need",
        _begin_all_answers,
    ),
    Mutation(
        "renewed-in-one-turn",
        "a Renew of thousands of resources is answered in one turn of the reactor",
        _renew_all_at_once,
    ),
    Mutation(
        "renewals-wait-without-limit",
        "one change makes a broker look at all resources that a thousand waiting Renews of a connection name",
        _wait_with_all_renewals,
    ),
    Mutation(
        "resumed-in-one-turn",
        "thousands of grants are resumed in one turn of the reactor, and in one write",
        _resume_all_at_once,
    ),
    Mutation(
        "fetches-wait-without-limit",
        "all fetches that one connection has sent ahead wait, and an append looks at each",
        _park_all_fetches,
    ),
    Mutation(
        "requests-of-any-size",
        "a request of 100 MB without records is decoded in one turn of the reactor",
        _decode_any_size,
    ),
)
