"""Finds transactions that are open in a partition and that no coordinator will end (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast_log.clients.admin import (
    Admin,
    ProducerDescription,
    TransactionDescription,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

_PARTITIONS_PER_REQUEST = 500


@dataclass(frozen=True, slots=True)
class SuspectTransaction:
    """A transaction that a partition has had open for long: its producer has a start offset there."""

    partition: TopicPartition
    producer: ProducerDescription


def partitions_to_search(
    admin: Admin, topic: str | None, partition: int | None, broker: int | None
) -> list[TopicPartition]:
    """The partitions that the options name: of a topic, or of all topics, with a replica on `broker`."""
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    names = [topic] if topic is not None else admin.list_topics(include_internal=True)
    return [
        TopicPartition(each.name, one.partition)
        for each in admin.describe_topics(names)
        for one in each.partitions
        if broker is None or broker in one.replicas
    ]


def suspects(
    admin: Admin, partitions: Sequence[TopicPartition], broker: int | None, silent_since_ms: int
) -> list[SuspectTransaction]:
    """The open transactions whose producers have not written since that time, in ms since the epoch."""
    found = []
    for begin in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
        some = partitions[begin : begin + _PARTITIONS_PER_REQUEST]
        for at, producers in admin.describe_producers(some, broker=broker).items():
            found += [
                SuspectTransaction(at, each)
                for each in producers
                if each.transaction_start_offset is not None and each.last_timestamp < silent_since_ms
            ]
    return found


def hanging(admin: Admin, found: Iterable[SuspectTransaction]) -> list[SuspectTransaction]:
    """Those of the suspects that no coordinator has among its open transactions."""
    of_producers: dict[int, list[SuspectTransaction]] = {}
    for each in found:
        of_producers.setdefault(each.producer.producer_id, []).append(each)
    if not of_producers:
        return []
    known = {
        each.producer_id: each.transactional_id for each in admin.list_transactions(producer_ids=of_producers)
    }
    described = {number: _description(admin, name) for number, name in known.items()}
    return list(_abandoned(of_producers, described))


def _abandoned(
    of_producers: Mapping[int, list[SuspectTransaction]],
    described: Mapping[int, TransactionDescription | None],
) -> Iterator[SuspectTransaction]:
    for producer_id, found in of_producers.items():
        description = described.get(producer_id)
        expected = () if description is None else description.partitions
        yield from (each for each in found if each.partition not in expected)


def _description(admin: Admin, transactional_id: str) -> TransactionDescription | None:
    try:
        return admin.describe_transactions([transactional_id])[transactional_id]
    except BrokerError as error:
        if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None
