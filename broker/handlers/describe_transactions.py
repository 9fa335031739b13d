"""DescribeTransactions (key 65): the state of transactional ids, by their coordinator (KIP-664). Partitions
of topics that the client may not describe are left out."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred, fail

from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.transactions.answers import id_refusal
from holdfast_log.coordinator.transactions.effects import TransactionAnswer
from holdfast_log.coordinator.transactions.records import by_topic
from holdfast_log.coordinator.transactions.service import TransactionService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionTopicData,
)

_PARTITION_BYTES = 24
"""The price of a partition of a transaction in the work of a turn: partitions are sorted."""


@dataclass(eq=False)
class DescribeTransactionsHandler(Handler[DescribeTransactionsRequest, DescribeTransactionsResponse]):
    request = DescribeTransactionsRequest
    transactions: TransactionService
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: DescribeTransactionsRequest
    ) -> Deferred[DescribeTransactionsResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        with self.answers.begin(context, DescribeTransactionsResponse) as answer:
            rows = answer.rows(DescribedTransaction)
            # Each id once: its transaction may have ten thousand partitions.
            for transactional_id in dict.fromkeys(request.transactional_ids):
                rows.add(await self._row(answer, transactional_id))
            return _response(rows.finish())

    async def _row(self, answer: LongAnswer, transactional_id: str) -> DescribedTransaction:
        context = answer.context
        try:
            found = await answer.outcome(self._ask(context, transactional_id))
        except BrokerError as error:
            await answer.afford(len(transactional_id))
            return _refused(transactional_id, error.code)
        partitions = 0 if found.transaction is None else len(found.transaction.partitions)
        if not await answer.afford(len(transactional_id) + _PARTITION_BYTES * partitions):
            return _refused(transactional_id, answer.too_long.code)
        return _described(context, transactional_id, found)

    def _ask(self, context: RequestContext, transactional_id: str) -> Deferred[TransactionAnswer]:
        denied = context.denial(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transactional_id)
        refused = denied or id_refusal(transactional_id)
        if refused is not None:
            return fail(refused)
        return self.transactions.ask(
            transactional_id, lambda shard, waiting, _: shard.describe(waiting, transactional_id)
        )

    def failed(
        self, context: RequestContext, request: DescribeTransactionsRequest, error: BrokerError
    ) -> DescribeTransactionsResponse:
        return _response([_refused(each, error.code) for each in request.transactional_ids])


def _response(rows: list[DescribedTransaction]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=rows)


def _refused(transactional_id: str, error: ErrorCode) -> DescribedTransaction:
    return DescribedTransaction(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def _described(
    context: RequestContext, transactional_id: str, answer: TransactionAnswer
) -> DescribedTransaction:
    found = answer.transaction
    if found is None:
        return _refused(transactional_id, answer.error)
    return DescribedTransaction(
        error_code=answer.error,
        transactional_id=transactional_id,
        transaction_state=found.state.title,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            TransactionTopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(found.partitions).items()
            if context.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic, is_noted=False)
        ],
    )
