"""A shard of transactions with a log in memory, which commits every record at once, or refuses all."""

from __future__ import annotations

from typing import Any

from holdfast_log.coordinator.shards.effects import RecordsRefused, ShardRecord
from holdfast_log.coordinator.transactions.effects import (
    MarkersToWrite,
    PartitionsAnswer,
    ProducerAnswer,
    ProducerIdWanted,
    TransactionResult,
)
from holdfast_log.coordinator.transactions.epochs import ProducerName
from holdfast_log.coordinator.transactions.memory import TransactionMemory
from holdfast_log.coordinator.transactions.records import Transaction
from holdfast_log.coordinator.transactions.settings import TransactionSettings
from holdfast_log.coordinator.transactions.shard import TransactionShard
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
TIMEOUT_MS = 60_000
ID = "payments"


class Coordinator:
    """One shard. Producer ids are assigned from 1000 on."""

    def __init__(self, **settings: Any) -> None:
        self.settings = TransactionSettings(**settings)
        self.memory = TransactionMemory()
        self.log: list[ShardRecord] = []
        self.error: ErrorCode | None = None
        self.now_ms = 1_000_000
        self.ids = 1_000
        self.markers: list[MarkersToWrite] = []
        self.shard = TransactionShard(self.settings, self.memory)

    def __getitem__(self, transactional_id: str) -> Transaction:
        return self.shard.transactions[transactional_id]

    def perform(self, result: TransactionResult) -> Any:
        """Perform a result; the answer to its only request."""
        if result.records and self.error is not None:
            result = self.shard.refused(result, self.error, self.now_ms)
        self.log += result.records
        self.markers += result.claims
        return result.replies[0].answer if result.replies else None

    def take_over(self) -> None:
        """A new coordinator reads the log."""
        self.shard.close()
        self.shard = TransactionShard(self.settings, self.memory)
        self.markers.clear()
        for key, value in self.log:
            self.shard.replay(key, value)
        self.perform(self.shard.loaded(self.now_ms))

    def init(
        self,
        transactional_id: str = ID,
        expected: ProducerName | None = None,
        timeout_ms: int = TIMEOUT_MS,
        source: str = "",
    ) -> ProducerAnswer:
        def ask(new_id: int | None) -> Any:
            result = self.shard.init_producer_id(
                "request",
                transactional_id,
                timeout_ms,
                now_ms=self.now_ms,
                expected=expected,
                new_producer_id=new_id,
                source=source,
            )
            return self.perform(result)

        return self._with_id(ask)

    def add(
        self, producer: ProducerName, *partitions: TopicPartition, client_version: int = 0
    ) -> PartitionsAnswer:
        return self._added(
            self.perform(
                self.shard.add_partitions(
                    "request",
                    ID,
                    producer,
                    partitions or (A0,),
                    now_ms=self.now_ms,
                    client_version=client_version,
                )
            )
        )

    def end(self, producer: ProducerName, *, is_commit: bool = True, bumps: bool = False) -> ProducerAnswer:
        def ask(new_id: int | None) -> Any:
            result = self.shard.end(
                "request",
                ID,
                producer,
                is_commit=is_commit,
                now_ms=self.now_ms,
                bumps=bumps,
                new_producer_id=new_id,
            )
            return self.perform(result)

        return self._with_id(ask)

    def verify(self, producer: ProducerName, *partitions: TopicPartition) -> PartitionsAnswer:
        answer = self.perform(self.shard.verify_partitions("request", ID, producer, partitions))
        assert isinstance(answer, PartitionsAnswer)
        return answer

    def mark(self, *partitions: TopicPartition) -> None:
        """The partitions of the last transaction that has ended have its marker; without any, all have."""
        ended = self.markers[-1]
        self.perform(self.shard.marked(ended, partitions or ended.partitions, self.now_ms))

    def tick(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self.perform(self.shard.tick(self.now_ms))

    def producer(self, transactional_id: str = ID) -> ProducerName:
        """A producer that has just got its id and epoch."""
        answer = self.init(transactional_id)
        assert answer.error is ErrorCode.NONE
        return ProducerName(answer.producer_id, answer.producer_epoch)

    def _with_id(self, ask: Any) -> ProducerAnswer:
        answer = ask(None)
        if isinstance(answer, ProducerIdWanted):
            self.ids += 1
            answer = ask(self.ids)
        if isinstance(answer, RecordsRefused):
            return ProducerAnswer(answer.error)
        assert isinstance(answer, ProducerAnswer)
        return answer

    def _added(self, answer: Any) -> PartitionsAnswer:
        if isinstance(answer, RecordsRefused):
            return PartitionsAnswer(answer.error)
        assert isinstance(answer, PartitionsAnswer)
        return answer
