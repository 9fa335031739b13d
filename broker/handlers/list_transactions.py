"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664), those that the
client may describe.

Versions: from 1 on only those that have been open for longer than a duration (KIP-994).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.transactions.effects import TransactionsAnswer
from holdfast_log.coordinator.transactions.service import TransactionService
from holdfast_log.coordinator.transactions.states import BY_TITLE
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)


@dataclass(eq=False)
class ListTransactionsHandler(Handler[ListTransactionsRequest, ListTransactionsResponse]):
    request = ListTransactionsRequest
    transactions: TransactionService

    def handle(
        self, context: RequestContext, request: ListTransactionsRequest
    ) -> Deferred[ListTransactionsResponse]:
        states = {BY_TITLE[title] for title in request.state_filters if title in BY_TITLE}
        unknown = [title for title in request.state_filters if title not in BY_TITLE]
        producer_ids = frozenset(request.producer_id_filters)

        def answered(answers: tuple[Sequence[TransactionsAnswer], ErrorCode]) -> ListTransactionsResponse:
            found, error = answers
            return ListTransactionsResponse(
                throttle_time_ms=0,
                error_code=error,
                unknown_state_filters=unknown,
                transaction_states=[
                    ListedTransaction(
                        transactional_id=transactional_id,
                        producer_id=each.producer_id,
                        transaction_state=each.state.title,
                    )
                    for answer in found
                    for transactional_id, each in answer.transactions
                    if context.may(
                        AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transactional_id, is_noted=False
                    )
                ],
            )

        return self.transactions.ask_all(
            lambda shard, waiting, now_ms: shard.list(
                waiting,
                states if request.state_filters else None,
                producer_ids,
                request.duration_filter,
                now_ms,
            )
        ).addCallback(answered)

    def failed(
        self, context: RequestContext, request: ListTransactionsRequest, error: BrokerError
    ) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            throttle_time_ms=0, error_code=error.code, unknown_state_filters=[], transaction_states=[]
        )
