"""Known bugs of clients that no campaign reaches: each is caught by a fixed scenario."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from holdfast_log.clients.connection import answers, conversation
from holdfast_log.clients.connection.backoff import Backoff
from holdfast_log.clients.connection.cluster_view import NO_NODE, Metadata
from holdfast_log.clients.connection.conversation import FrameReader, Received
from holdfast_log.clients.connection.link import Link, Reply
from holdfast_log.clients.groups.partitions_beside import PartitionsBeside
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.sender import Sender
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.messages.metadata import MetadataResponseTopic
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.sim.mutation import Mutation, Patch


def _wait_for_an_unknown_leader() -> Sequence[Patch]:
    update = Metadata._update_topic

    def mutant(self: Metadata, name: str, row: MetadataResponseTopic) -> None:
        was_stale = self._is_stale
        update(self, name, row)
        if all(each.leader_id != NO_NODE for each in row.partitions):
            self._is_stale = was_stale

    return [(Metadata, "_update_topic", mutant)]


def _keep_who_gave_up() -> Sequence[Patch]:
    def mutant(self: Batch, callback: Callable[[], object]) -> None:
        pass

    return [(Batch, "forget", mutant)]


def _begin_before_it_is_revoked() -> Sequence[Patch]:
    def mutant(self: PartitionsBeside, partition: TopicPartition, owned: Collection[TopicPartition]) -> bool:
        return True

    return [(PartitionsBeside, "add", mutant)]


def _ask_again_without_a_pause() -> Sequence[Patch]:
    def mutant(self: Backoff, failures: int) -> int:
        return 0

    return [(Backoff, "after", mutant)]


def _believe_every_answer() -> Sequence[Patch]:
    def mutant(request: Request[Any], response: Response) -> None:
        pass

    return [(conversation, "check_answer", mutant)]


def _take_what_is_left_out_for_done() -> Sequence[Patch]:
    return [(answers, "check_complete", lambda request, response: None)]


def _look_again_after_a_whole_timeout() -> Sequence[Patch]:
    handle = Sender._handle_new

    def mutant(self: Sender, now_ms: int) -> list[tuple[int, list[Batch]]]:
        self._oldest_ms = now_ms
        return handle(self, now_ms)

    return [(Sender, "_handle_new", mutant)]


def _pay_for_what_is_announced() -> Sequence[Patch]:
    begin = FrameReader._begin_large

    def mutant(self: FrameReader, size: int, start: int) -> None:
        begin(self, size, start)
        self._large = bytearray(size)

    return [(FrameReader, "_begin_large", mutant)]


def _obey_every_throttle() -> Sequence[Patch]:
    replies = Link._replies

    def mutant(self: Link, received: list[Received], now_ms: int) -> list[Reply]:
        asked_ms = [getattr(each.response, "throttle_time_ms", 0) for each in received]
        found = replies(self, received, now_ms)
        self._throttled_until_ms = max(
            [self._throttled_until_ms, *(now_ms + each for each in asked_ms if each)]
        )
        return found

    return [(Link, "_replies", mutant)]


RARE = (
    Mutation(
        "no-pause",
        "a client asks a broker that misleads it again at once",
        _ask_again_without_a_pause,
    ),
    Mutation(
        "any-answer-believed",
        "a client takes an answer that names what was not asked for",
        _believe_every_answer,
    ),
    Mutation(
        "delivery-timeout-twice",
        "a message fails after up to twice delivery.timeout.ms if something else happens just before",
        _look_again_after_a_whole_timeout,
    ),
    Mutation(
        "left-out-is-done",
        "the admin client takes a topic that the answer leaves out for created",
        _take_what_is_left_out_for_done,
    ),
    Mutation(
        "announced-length-paid",
        "a length that a broker announces costs a client that much memory",
        _pay_for_what_is_announced,
    ),
    Mutation(
        "endless-throttle",
        "a client sends nothing for as long as a broker asks for, be it weeks",
        _obey_every_throttle,
    ),
    Mutation(
        "unknown-leader-awaited",
        "a client does not ask again for a leader whose address the answer did not have",
        _wait_for_an_unknown_leader,
    ),
    Mutation(
        "waiters-kept",
        "a batch keeps the callbacks of those that no longer wait for its outcome",
        _keep_who_gave_up,
    ),
    Mutation(
        "partition-beside-revoked",
        "a consumer loses a partition that it reads itself when its group takes the topic back",
        _begin_before_it_is_revoked,
    ),
)
