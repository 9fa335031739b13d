"""Bugs of expected versions of keys, and of the index that knows them."""

from __future__ import annotations

from collections.abc import Sequence

from broker.log import key_reading
from broker.log.key_versions import KeyVersions
from broker.log.log import Log
from broker.replication import conditions
from tests.sim.mutation import Mutation, Patch


def _judge_nothing() -> Sequence[Patch]:
    return [(conditions, "_version_refusal", lambda append, partition, expected: None)]


def _read_no_keys_again() -> Sequence[Patch]:
    def mutant(log: Log, index: KeyVersions) -> None:
        index.end_offset = log.log_end_offset

    return [(key_reading, "next_scan", mutant)]


MUTATIONS = (
    Mutation(
        "key-versions-not-judged",
        "a record is appended whatever version its key has",
        _judge_nothing,
    ),
    Mutation(
        "key-versions-not-rebuilt",
        "a broker that starts does not read the keys of its log again",
        _read_no_keys_again,
    ),
)
