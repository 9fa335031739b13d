"""DescribeTransactions (key 65): the state of transactional ids, by their coordinator (KIP-664). Partitions
of topics that the client may not describe are left out."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, fail, gatherResults
from twisted.python.failure import Failure

from holdfast_log.broker.requests.handler import Handler, RequestContext, refusal
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


@dataclass(eq=False)
class DescribeTransactionsHandler(Handler[DescribeTransactionsRequest, DescribeTransactionsResponse]):
    request = DescribeTransactionsRequest
    transactions: TransactionService

    def handle(
        self, context: RequestContext, request: DescribeTransactionsRequest
    ) -> Deferred[DescribeTransactionsResponse]:
        asked = [
            self._ask(context, each).addErrback(_failed, each)
            for each in dict.fromkeys(request.transactional_ids)
        ]
        return gatherResults(asked).addCallback(_response)

    def _ask(self, context: RequestContext, transactional_id: str) -> Deferred[DescribedTransaction]:
        denied = context.denial(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transactional_id)
        if denied is None and not transactional_id:
            denied = BrokerError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
        if denied is not None:
            return fail(denied)
        return self.transactions.ask(
            transactional_id, lambda shard, waiting, _: shard.describe(waiting, transactional_id)
        ).addCallback(lambda answer: _described(context, transactional_id, answer))

    def failed(
        self, context: RequestContext, request: DescribeTransactionsRequest, error: BrokerError
    ) -> DescribeTransactionsResponse:
        return _response([_refused(each, error.code) for each in request.transactional_ids])


def _response(rows: list[DescribedTransaction]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=rows)


def _failed(failure: Failure, transactional_id: str) -> DescribedTransaction:
    return _refused(transactional_id, refusal(failure).code)


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
