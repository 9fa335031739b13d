"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664), those that the
client may describe.

Versions: from 1 on only those that have been open for longer than a duration (KIP-994).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.transactions.effects import TransactionsAnswer
from holdfast_log.coordinator.transactions.listing import TransactionFilter
from holdfast_log.coordinator.transactions.records import Transaction
from holdfast_log.coordinator.transactions.service import TransactionService
from holdfast_log.coordinator.transactions.states import BY_TITLE
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)


@dataclass(eq=False)
class ListTransactionsHandler(Handler[ListTransactionsRequest, ListTransactionsResponse]):
    request = ListTransactionsRequest
    transactions: TransactionService
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: ListTransactionsRequest
    ) -> Deferred[ListTransactionsResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        states = {BY_TITLE[title] for title in request.state_filters if title in BY_TITLE}
        wanted = TransactionFilter(
            states if request.state_filters else None,
            frozenset(request.producer_id_filters),
            request.duration_filter,
        )
        found, error = await self.transactions.ask_all(
            lambda shard, waiting, now_ms: shard.list(waiting, now_ms)
        )
        with self.answers.begin(context, ListTransactionsResponse) as answer:
            rows = answer.rows(ListedTransaction)
            for transactional_id, each, now_ms in _known(found):
                if not (wanted.has(each, now_ms) and _may_describe(context, transactional_id)):
                    await answer.turn(0)
                    continue
                if not await answer.afford(len(transactional_id)):
                    raise answer.too_long
                rows.add(
                    ListedTransaction(
                        transactional_id=transactional_id,
                        producer_id=each.producer_id,
                        transaction_state=each.state.title,
                    )
                )
            return ListTransactionsResponse(
                throttle_time_ms=0,
                error_code=error,
                unknown_state_filters=[each for each in request.state_filters if each not in BY_TITLE],
                transaction_states=rows.finish(),
            )

    def failed(
        self, context: RequestContext, request: ListTransactionsRequest, error: BrokerError
    ) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            throttle_time_ms=0, error_code=error.code, unknown_state_filters=[], transaction_states=[]
        )


def _known(answers: Sequence[TransactionsAnswer]) -> Iterator[tuple[str, Transaction, int]]:
    """The transactions of all shards, each with the time at which its shard was asked."""
    for answer in answers:
        for transactional_id, each in zip(answer.transactional_ids, answer.transactions, strict=True):
            yield transactional_id, each, answer.now_ms


def _may_describe(context: RequestContext, transactional_id: str) -> bool:
    return context.may(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transactional_id, is_noted=False)
