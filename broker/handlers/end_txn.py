"""EndTxn (key 26): commit or abort a transaction. The response comes once the decision is durable; the
partitions get their markers afterwards, whatever happens to this broker.

Versions: before 2 a fenced producer is answered INVALID_PRODUCER_EPOCH. From 5 on the producer goes on with
the id and epoch in the response (KIP-890).

A producer that has written for the owner of a partition names the owner's grant. Once that has ended, its
transaction cannot be committed any more. A commit that is decided already stays: its repetition succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.ownership.committers import CommitterCheck
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.transactions.answers import check_transactional_id, known_error
from holdfast_log.coordinator.ownership.records import PartitionKey
from holdfast_log.coordinator.shards.hosted_shard import ShardEvent
from holdfast_log.coordinator.transactions.effects import ProducerAnswer, TransactionAnswer
from holdfast_log.coordinator.transactions.epochs import ProducerName
from holdfast_log.coordinator.transactions.service import TransactionService
from holdfast_log.coordinator.transactions.shard import TransactionShard
from holdfast_log.coordinator.transactions.states import TransactionState
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_FIRST_VERSION_WITH_FENCED = 2
_FIRST_VERSION_WITH_NEXT_EPOCH = 5
CHECKED_TOGETHER = 50
"""Maximum number of partitions whose owners are read at a time: each costs an order to ZooKeeper, and what
its answer is compared with."""
_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


@dataclass(eq=False)
class EndTxnHandler(Handler[EndTxnRequest, EndTxnResponse]):
    request = EndTxnRequest
    transactions: TransactionService
    metadata: MetadataCache
    committers: CommitterCheck

    def handle(self, context: RequestContext, request: EndTxnRequest) -> Deferred[EndTxnResponse]:
        context.check(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id)
        check_transactional_id(request.transactional_id)
        bumps = context.version >= _FIRST_VERSION_WITH_NEXT_EPOCH

        def event(new_producer_id: int | None) -> ShardEvent[TransactionShard]:
            return lambda shard, waiting, now_ms: shard.end(
                waiting,
                request.transactional_id,
                ProducerName(request.producer_id, request.producer_epoch),
                is_commit=request.committed,
                now_ms=now_ms,
                bumps=bumps,
                new_producer_id=new_producer_id,
            )

        def answered(answer: ProducerAnswer) -> EndTxnResponse:
            error = known_error(answer.error, knows_fenced=context.version >= _FIRST_VERSION_WITH_FENCED)
            return EndTxnResponse(
                throttle_time_ms=0,
                error_code=error,
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
            )

        def end(_: object) -> Deferred[EndTxnResponse]:
            asked = self.transactions.ask_with_id(request.transactional_id, event)
            return asked.addCallbacks(answered, _no_new_id)

        if not request.committed or not request.owned:
            return end(None)
        return ensureDeferred(self._check_owners(request)).addCallback(end)

    async def _check_owners(self, request: EndTxnRequest) -> None:
        """Raises OWNERSHIP_FENCED if an owner for whom the transaction has written has lost its grant, unless
        the commit is decided already."""
        answer: TransactionAnswer = await self.transactions.ask(
            request.transactional_id,
            lambda shard, waiting, _: shard.describe(waiting, request.transactional_id),
        )
        if answer.transaction is not None and answer.transaction.state in _COMMITTED:
            return
        # Of a partition that is named twice, the last token counts.
        owned = {(each.topic, each.partition): each for each in request.owned}
        left = iter(owned.values())
        while some := list(islice(left, CHECKED_TOGETHER)):
            tokens = {
                PartitionKey(self.metadata.topic_id(each.topic), each.partition, each.topic): each.owner_token
                for each in some
            }
            ended = await self.committers.ended(tokens)
            if ended:
                raise BrokerError(
                    ErrorCode.OWNERSHIP_FENCED,
                    f"the transaction cannot be committed: the grant of {', '.join(sorted(map(str, ended)))} "
                    "for which it has written has ended",
                )

    def failed(self, context: RequestContext, request: EndTxnRequest, error: BrokerError) -> EndTxnResponse:
        return EndTxnResponse(throttle_time_ms=0, error_code=error.code)


def _no_new_id(failure: Failure) -> NoReturn:
    if failure.check(BrokerError):
        failure.raiseException()
    failure.trap(SessionExpired, BadZnode)
    raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
