"""Bugs of conditional appends (KIP-27), and of the retries of idempotent producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.replication.appends import Append, Condition
from holdfast_log.broker.replication.conditions import Conditions
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.schema import ZERO_UUID
from tests.sim.mutation import Mutation, Patch


def _accept_offsets_below_the_end() -> Sequence[Patch]:
    refusal = Conditions._offset_refusal

    def mutant(
        self: Conditions, append: Append, partition: Partition, condition: Condition, origin: Any
    ) -> BrokerError | None:
        if condition.expected_offset < partition.log.log_end_offset:
            return None
        return refusal(self, append, partition, condition, origin)

    return [(Conditions, "_offset_refusal", mutant)]


def _ignore_guards() -> Sequence[Patch]:
    judge = Conditions.judge

    def mutant(self: Conditions, appends: Sequence[Append], origin: Any, acks: int) -> None:
        judge(self, [append for append in appends if not append.is_guard], origin, acks)
        for append in appends:
            if append.is_guard and append.partition is not None:
                append.judged_epoch = append.partition.leader_epoch

    return [(Conditions, "judge", mutant)]


def _take_any_topic_of_the_name() -> Sequence[Patch]:
    refusal = Conditions._refusal

    def mutant(self: Conditions, append: Append, origin: Any, acks: int) -> BrokerError | None:
        assert append.condition is not None
        append.condition = append.condition._replace(topic_id=ZERO_UUID)
        return refusal(self, append, origin, acks)

    return [(Conditions, "_refusal", mutant)]


def _forget_refusals() -> Sequence[Patch]:
    return [(Conditions, "remember", lambda self, appends, origin: None)]


def _append_retries() -> Sequence[Patch]:
    check = ProducerStates.check

    def mutant(self: ProducerStates, headers: Any) -> None:
        check(self, headers)

    return [(ProducerStates, "check", mutant)]


MUTATIONS = (
    Mutation(
        "offset-below-end-accepted",
        "a conditional append takes place although the log has grown beyond the expected offset",
        _accept_offsets_below_the_end,
    ),
    Mutation(
        "guards-ignored",
        "the conditions of a request on other partitions are not judged",
        _ignore_guards,
    ),
    Mutation(
        "retry-appended-twice", "a retry of a batch that is in the log is appended again", _append_retries
    ),
)

# Clients in random plans mean the topic that their metadata shows, and number no attempts.
RARE = (
    Mutation(
        "deleted-topic-meant",
        "a condition on a topic that was deleted counts for the new topic of the same name",
        _take_any_topic_of_the_name,
    ),
    Mutation(
        "refusal-forgotten",
        "conditional batches behind a refused one of the same attempt are judged by themselves",
        _forget_refusals,
    ),
)
