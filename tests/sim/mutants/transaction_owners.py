"""Bugs of transactions that write for the owner of a partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import ensureDeferred

from holdfast_log.broker.handlers import end_txn
from holdfast_log.broker.handlers.end_txn import EndTxnHandler
from holdfast_log.broker.ownership import committers
from holdfast_log.broker.replication.appends import Append
from holdfast_log.protocol.errors import BrokerError
from tests.sim.mutation import Mutation, Patch
from tests.sim.plan import TRANSACTIONS


def _ignore_owners() -> Sequence[Patch]:
    async def mutant(self: EndTxnHandler, request: Any) -> None:
        pass

    return [(EndTxnHandler, "_check_owners", mutant)]


def _accept_any_grant() -> Sequence[Patch]:
    def mutant(record: Any, group: str, token: int) -> bool:
        history = () if record is None else record.histories.get(group, ())
        return any(each.incarnation == token for each in history)

    return [(committers, "may_commit", mutant)]


def _judge_decided_commits() -> Sequence[Patch]:
    return [(end_txn, "_COMMITTED", ())]


def _decide_all_the_same() -> Sequence[Patch]:
    handle, check = EndTxnHandler.handle, EndTxnHandler._check_owners

    def mutant(self: EndTxnHandler, context: Any, request: Any) -> Any:
        if not request.committed or not request.owned:
            return handle(self, context, request)
        owned, request.owned = request.owned, []

        async def decide() -> Any:
            refusal = None
            try:
                request.owned = owned
                await check(self, request)
            except BrokerError as error:
                refusal = error
            request.owned = []
            answer = await handle(self, context, request)  # type: ignore[misc]
            if refusal is not None:
                raise refusal
            return answer

        return ensureDeferred(decide())

    return [(EndTxnHandler, "handle", mutant)]


def _judge_the_fence_once() -> Sequence[Patch]:
    admit = Append._admit_fenced

    def mutant(self: Append, partition: Any, fence: Any, acks: int) -> None:
        headers = [] if self.prepared is None else self.prepared.headers
        if headers and partition.log.producers.continues_transaction(headers[0]):
            return
        admit(self, partition, fence, acks)

    return [(Append, "_admit_fenced", mutant)]


def _mutation(name: str, what: str, patches: Callable[[], Sequence[Patch]]) -> Mutation:
    return Mutation(name, what, patches, TRANSACTIONS)


MUTATIONS = (
    _mutation("owned-ignored", "an owner commits after it has lost its grant", _ignore_owners),
    _mutation(
        "any-grant-commits", "an owner commits that had a grant once, and has a successor", _accept_any_grant
    ),
)

RARE = (
    _mutation(
        "decided-commit-refused",
        "a commit that is decided is refused once its owner has been replaced",
        _judge_decided_commits,
    ),
    _mutation(
        "refused-commit-decided",
        "a commit that an owner is refused counts all the same",
        _decide_all_the_same,
    ),
    _mutation(
        "fence-judged-at-begin-only",
        "only the batch that begins a transaction needs a grant in force",
        _judge_the_fence_once,
    ),
)
