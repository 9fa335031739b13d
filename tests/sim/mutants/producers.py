"""Bugs of the ids of producers that strangers make up (KIP-98)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast_log.broker.handlers import incremental_alter_configs
from holdfast_log.broker.log.introductions import Introductions
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.producer_totals import ProducerTotals
from holdfast_log.broker.quotas.entities import QuotaEntity
from holdfast_log.broker.replication import usual_append
from holdfast_log.broker.replication.admission import Origin
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.introducing import Introducing
from holdfast_log.broker.replication.usual_append import UsualAppends
from holdfast_log.broker.settings import changes, view
from holdfast_log.broker.settings.alterations import ClientBound
from holdfast_log.coordinator.cluster.handed_out_ids import HandedOutIds
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.protocol.schema import decode_from, received_records
from tests.sim.mutation import Mutation, Patch


def _take_every_id() -> Sequence[Patch]:
    return [(HandedOutIds, "refusal", lambda self, producer_id: None)]


def _judge_nobody() -> Sequence[Patch]:
    return [(Introducing, "judge", lambda self, append, origin, date_ms: None)]


def _forget_refused_batches() -> Sequence[Patch]:
    return [(Introducing, "_behind_a_refused", lambda self, append, header, date_ms: None)]


def _take_what_earlier_leaders_left() -> Sequence[Patch]:
    return [(Introducing, "_perhaps_not_first", lambda self, append, header, leader_epoch: None)]


def _evict_the_oldest_of_all() -> Sequence[Patch]:
    add = Introductions.add

    def mutant(self: Introductions, producer_id: int, source: str, now_ms: int) -> None:
        add(self, producer_id, "", now_ms)

    return [(Introductions, "add", mutant)]


def _learn_nothing_after_a_refusal() -> Sequence[Patch]:
    return [(HandedOutIds, "_read", lambda self: None)]


def _count_nothing_in_all_logs() -> Sequence[Patch]:
    return [(ProducerTotals, "producer_comes", lambda self, source: None)]


def _take_from_others() -> Sequence[Patch]:
    def forget_the_oldest(self: ProducerStates, count: int, source: str | None) -> None:
        for entry in self.entries()[:count]:
            self._remove(entry.producer_id)

    return [(ProducerStates, "forget_producers", forget_the_oldest)]


def _alter_internal_topics_at_will() -> Sequence[Patch]:
    return [(changes, "check_internal_topic", lambda topic, configs, own, replicas: None)]


def _create_internal_topics_at_will() -> Sequence[Patch]:
    return [(view, "check_enough_replicas", lambda topic, min_in_sync, replicas: None)]


def _bound_no_index_interval() -> Sequence[Patch]:
    refusal = ClientBound.refusal

    def mutant(self: ClientBound, value: int) -> str | None:
        return refusal(replace(self, largest=None), value)

    return [(ClientBound, "refusal", mutant)]


def _bound_no_index_density() -> Sequence[Patch]:
    refusal = ClientBound.refusal

    def mutant(self: ClientBound, value: int) -> str | None:
        return refusal(self if self.largest is None else replace(self, smallest=None), value)

    return [(ClientBound, "refusal", mutant)]


def _alter_one_thing_many_times() -> Sequence[Patch]:
    return [(incremental_alter_configs, "repeated_resources", lambda resources: frozenset())]


def _give_everybody_any_quota() -> Sequence[Patch]:
    return [(QuotaEntity, "is_of_everybody", property(lambda self: False))]


def _append_the_first_before_the_others_are_looked_at() -> Sequence[Patch]:
    append = UsualAppends.append

    def mutant(
        self: UsualAppends,
        origin: Origin,
        frame: memoryview,
        version: int,
        position: int,
        correlation_id: int,
    ) -> Any:
        answer = append(self, origin, frame, version, position, correlation_id)
        if answer is None:
            request, _ = decode_from(ProduceRequest, version, frame, position)
            topic, *others = request.topic_data
            data, *beside = topic.partition_data
            if others or beside:
                first = Append(topic.name, data.index, memoryview(bytearray(received_records(data.records))))
                self.replicas.append([first], request.acks, origin)
        return answer

    return [(usual_append, "are_known", lambda: True), (UsualAppends, "append", mutant)]


RARE = (
    Mutation(
        "left-to-python-half-done",
        "a produce request of several partitions that is left to Python has appended its first batch already",
        _append_the_first_before_the_others_are_looked_at,
    ),
    Mutation(
        "producers-without-total",
        "one client fills the memory with producers, because only each partition has a limit",
        _count_nothing_in_all_logs,
    ),
    Mutation(
        "total-takes-from-others",
        "a client whose producers are too many takes the places of other clients'",
        _take_from_others,
    ),
    Mutation(
        "internal-topic-altered",
        "any client may give __consumer_offsets settings with which brokers lose the offsets",
        _alter_internal_topics_at_will,
    ),
    Mutation(
        "internal-topic-created",
        "any client may create __consumer_offsets with fewer replicas than brokers need to store an offset",
        _create_internal_topics_at_will,
    ),
    Mutation(
        "index-without-entries",
        "any client may give a topic an index so sparse that each search walks through a segment",
        _bound_no_index_interval,
    ),
    Mutation(
        "index-of-every-batch",
        "any client may give a topic an index so dense that checking it takes hundreds of megabytes",
        _bound_no_index_density,
    ),
    Mutation(
        "altered-many-times",
        "a request that alters one topic hundreds of times keeps ZooKeeper busy for minutes",
        _alter_one_thing_many_times,
    ),
    Mutation(
        "quota-of-one-byte",
        "any client may stop all others by a quota of one byte per second",
        _give_everybody_any_quota,
    ),
    Mutation(
        "later-batch-taken-first",
        "a producer's later batch is taken though its first one was refused for now a moment ago",
        _forget_refused_batches,
    ),
    Mutation(
        "batch-overtaken-at-next-leader",
        "a producer's later batch is taken though an earlier leader has refused its first one for now",
        _take_what_earlier_leaders_left,
    ),
    Mutation("made-up-id-taken", "a leader takes producer ids that nobody has handed out", _take_every_id),
    Mutation("any-epoch-raised", "whoever names a producer's id may raise its epoch", _judge_nobody),
    Mutation(
        "strangers-evict",
        "a producer is forgotten for the many ids that another client has introduced",
        _evict_the_oldest_of_all,
    ),
    Mutation(
        "blocks-unlearned",
        "a broker never learns of the blocks of producer ids that other brokers take",
        _learn_nothing_after_a_refusal,
    ),
)
