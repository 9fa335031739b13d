"""Bugs of the ids and sequences of idempotent producers (KIP-98)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast_log.broker.log import producer_entry, producer_state, sequence_checks
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.replication import following
from holdfast_log.coordinator.cluster.producer_ids import ProducerIds
from tests.sim.mutation import Mutation, Patch


def _accept_any_sequence() -> Sequence[Patch]:
    return [(producer_state, "check_sequence", lambda header, epoch, last_sequence: None)]


def _remember_one_batch() -> Sequence[Patch]:
    return [(producer_entry, "REMEMBERED_BATCHES", 1)]


def _copy_without_sequences() -> Sequence[Patch]:
    append = following.append_as_follower

    def mutant(log: Log, *arguments: Any, **keywords: Any) -> Any:
        producers, log.producers = log.producers, ProducerStates()
        try:
            return append(log, *arguments, **keywords)
        finally:
            log.producers = producers
            producers.map_end_offset = log.log_end_offset

    return [(following, "append_as_follower", mutant)]


class _BlindWrites:
    """A ZooKeeper session whose writes replace every version of a znode."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def set(self, path: str, data: bytes, version: int) -> Any:
        return self._session.set(path, data, -1)


def _reserve_ids_blindly() -> Sequence[Patch]:
    take_block = ProducerIds._take_block

    async def mutant(self: ProducerIds, session: Any) -> Any:
        return await take_block(self, _BlindWrites(session))  # type: ignore[arg-type]

    return [(ProducerIds, "_take_block", mutant)]


def _wrap_at_2_to_the_32() -> Sequence[Patch]:
    return [(module, "_SEQUENCE_MASK", 2**32 - 1) for module in (producer_entry, sequence_checks)]


MUTATIONS = (
    Mutation(
        "sequences-wrap-late",
        "a leader expects sequence 2^31 after the last one, instead of 0",
        _wrap_at_2_to_the_32,
    ),
    Mutation(
        "any-sequence",
        "a leader accepts a batch although an earlier batch of the producer is missing",
        _accept_any_sequence,
    ),
    Mutation(
        "one-batch-remembered",
        "a leader recognises only a producer's last batch, while five may be in flight",
        _remember_one_batch,
    ),
    Mutation(
        "sequences-not-copied",
        "a follower does not record the sequences of the batches that it copies",
        _copy_without_sequences,
    ),
    Mutation(
        "producer-ids-given-twice",
        "two brokers that reserve producer ids at the same time get the same ids",
        _reserve_ids_blindly,
    ),
)
