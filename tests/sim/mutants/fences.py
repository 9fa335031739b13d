"""Bugs of requests with a fence: the incarnation of a grant, and the secret of its claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast_log.broker.ownership import fences
from holdfast_log.broker.ownership.fences import FenceGuard
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.sim.mutants.leases import at_door
from tests.sim.mutation import Mutation, Patch

_ENDED = (ErrorCode.PRODUCER_FENCED, ErrorCode.OWNERSHIP_FENCED)


def _admit_earlier_grants() -> Sequence[Patch]:
    check = FenceGuard._check

    def mutant(self: FenceGuard, *arguments: Any) -> None:
        try:
            check(self, *arguments)
        except BrokerError as error:
            if error.code not in _ENDED:
                raise

    return [(FenceGuard, "_check", mutant)]


def _check_no_secret() -> Sequence[Patch]:
    return [(fences, "_is_proven", lambda grant, fence: True)]


def _judge_no_fence() -> Sequence[Patch]:
    return [
        (FenceGuard, "admit_append", lambda self, fence, acks: None),
        (FenceGuard, "admit_read", lambda self, fence: None),
    ]


MUTATIONS = (
    Mutation(
        "fence-not-judged",
        "a request with any fence writes and reads",
        _judge_no_fence,
    ),
    Mutation(
        "ended-fence-admitted",
        "the fence of a grant that has ended still writes and reads",
        _admit_earlier_grants,
    ),
    Mutation(
        "fence-secret-unchecked",
        "a client that names the incarnation of another's grant writes and reads by its fence",
        _check_no_secret,
    ),
)

RARE = (
    Mutation(
        "fence-judged-without-lease",
        "a broker without its lease judges fences by the grant that it knows",
        lambda: at_door(FenceGuard),
    ),
)
