"""Bugs of the ids of producers that strangers make up (KIP-98)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.log.introductions import Introductions
from holdfast_log.broker.replication.introducing import Introducing
from holdfast_log.coordinator.cluster.handed_out_ids import HandedOutIds
from tests.sim.mutation import Mutation, Patch


def _take_every_id() -> Sequence[Patch]:
    return [(HandedOutIds, "refusal", lambda self, producer_id: None)]


def _judge_nobody() -> Sequence[Patch]:
    return [(Introducing, "judge", lambda self, append, origin: None)]


def _evict_the_oldest_of_all() -> Sequence[Patch]:
    add = Introductions.add

    def mutant(self: Introductions, producer_id: int, source: str, now_ms: int) -> None:
        add(self, producer_id, "", now_ms)

    return [(Introductions, "add", mutant)]


def _learn_nothing_after_a_refusal() -> Sequence[Patch]:
    return [(HandedOutIds, "_read", lambda self: None)]


RARE = (
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
