"""Appends with an id, repeated by another process, against brokers in memory."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from holdfast_log.broker.log.append_ids import AppendIdLimits
from holdfast_log.clients.errors import UnsupportedRequestError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.conditions import APPEND_IDS_FEATURE, APPEND_IDS_VERSION, FEATURE
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.errors import AppendIdUnknownError, OffsetMismatchError
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.sending.settling import settle

LOG = "log"
ID = uuid.UUID(int=1)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.brokers[1].features |= {FEATURE: 1, APPEND_IDS_FEATURE: APPEND_IDS_VERSION}
    cluster.add_topic(LOG, 1)
    return cluster


def producer_on(cluster: FakeCluster, **properties: Any) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, **properties}
    return Producer(given, network=cluster.network(), rng=random.Random(1), is_threaded=False)


def result(producer: Producer, response: SendResponse) -> tuple[int | None, bool]:
    """(offset of the last message, whether it was there already). Raises the error of a failed response."""
    assert settle(producer, 60_000)
    if response.error is not None:
        raise response.error
    return response.offset, response.is_repeat


def append(
    cluster: FakeCluster,
    expected: int,
    *values: str,
    append_id: bytes | uuid.UUID | None = ID,
    unused_before: int | None = None,
) -> tuple[int | None, bool]:
    """The result of an append by a new process."""
    producer = producer_on(cluster)
    response = producer.send_at(
        expected, *messages(*values), append_id=append_id, unused_before=unused_before
    )
    return result(producer, response)


def forgetful(cluster: FakeCluster) -> None:
    """Have the partition's leader remember one id."""
    cluster.topics[LOG][0].producers.append_ids.limits = AppendIdLimits(ids_max=1)


def messages(*values: str) -> list[Message]:
    return [Message(LOG, value=value, partition=0) for value in values]


def values_in(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.topics[LOG][0].records()]


def test_a_repeated_append_succeeds_with_the_offset_of_the_first(cluster: FakeCluster) -> None:
    assert append(cluster, 0, "a", "b") == (1, False)
    assert append(cluster, 2, "c", append_id=None) == (2, False)

    assert append(cluster, 0, "a", "b") == (1, True)

    assert values_in(cluster) == [b"a", b"b", b"c"]


def test_the_expected_offset_of_a_repetition_is_not_compared(cluster: FakeCluster) -> None:
    append(cluster, 0, "a")
    assert append(cluster, 7, "a", append_id=ID.bytes) == (0, True)


def test_an_append_with_an_unknown_id_is_judged_by_its_offset(cluster: FakeCluster) -> None:
    append(cluster, 0, "a")
    with pytest.raises(OffsetMismatchError):
        append(cluster, 0, "a", append_id=uuid.UUID(int=2))


def test_a_producer_that_repeats_its_own_append_continues_with_its_sequence_numbers(
    cluster: FakeCluster,
) -> None:
    producer = producer_on(cluster)
    assert result(producer, producer.send_at(0, *messages("a"), append_id=ID)) == (0, False)
    assert result(producer, producer.send_at(1, *messages("a"), append_id=ID)) == (0, True)

    assert result(producer, producer.send_at(1, *messages("b"))) == (1, False)

    assert values_in(cluster) == [b"a", b"b"]
    sequences = [split(batch)[0].base_sequence for batch in cluster.topics[LOG][0].batches]
    assert sequences == [0, 1]


def test_the_retry_of_a_lost_answer_is_not_reported_as_a_repetition(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    cluster.brokers[1].fail_next(ProduceRequest, "cut after")
    assert result(producer, producer.send_at(0, *messages("a"), append_id=ID)) == (0, False)
    assert values_in(cluster) == [b"a"]


def test_the_first_message_has_the_id_in_a_header(cluster: FakeCluster) -> None:
    producer = producer_on(cluster, **{"compression.type": "gzip"})
    mine = Message(LOG, value="a", partition=0, headers=(("mine", b"1"),))
    result(producer, producer.send_at(0, mine, *messages("b"), append_id=ID))
    first, second = cluster.topics[LOG][0].records()
    assert first.headers == (("holdfast.append.id", ID.bytes), ("mine", b"1"))
    assert second.headers == ()


def test_an_append_with_an_id_shares_its_batch_with_no_other(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    responses = [
        producer.send_at(0, *messages("a")),
        producer.send_at(1, *messages("b"), append_id=ID),
        producer.send_at(2, *messages("c")),
    ]
    assert [result(producer, response)[0] for response in responses] == [0, 1, 2]
    assert len(cluster.topics[LOG][0].batches) == 3


def test_a_broker_that_knows_no_append_ids_gets_no_such_append(cluster: FakeCluster) -> None:
    del cluster.brokers[1].features[APPEND_IDS_FEATURE]
    with pytest.raises(UnsupportedRequestError, match="append ids"):
        append(cluster, 0, "a")


def test_the_refusal_by_offset_says_from_where_on_the_ids_are_known(cluster: FakeCluster) -> None:
    forgetful(cluster)
    for number in range(3):
        append(cluster, number, "x", append_id=uuid.UUID(int=number), unused_before=number)
    with pytest.raises(OffsetMismatchError) as raised:
        append(cluster, 2, "y", append_id=uuid.UUID(int=9), unused_before=2)
    assert (raised.value.next_offset, raised.value.append_ids_from) == (3, 2)


def test_an_append_whose_id_may_be_forgotten_is_not_sent_twice_by_the_recipe(cluster: FakeCluster) -> None:
    """After OffsetMismatchError, the same id is sent at the error's `next_offset`."""
    forgetful(cluster)
    append(cluster, 0, "a")
    for number in (1, 2):
        append(cluster, number, "x", append_id=uuid.UUID(int=10 + number), unused_before=number)

    for expected in (0, 3):
        with pytest.raises(AppendIdUnknownError) as raised:
            append(cluster, expected, "a")
        assert (raised.value.next_offset, raised.value.append_ids_from) == (3, 2)

    assert values_in(cluster) == [b"a", b"x", b"x"]


def test_a_refusal_for_its_id_leaves_the_producer_with_its_sequence_numbers(cluster: FakeCluster) -> None:
    forgetful(cluster)
    for number in range(3):
        append(cluster, number, "x", append_id=uuid.UUID(int=number), unused_before=number)
    producer = producer_on(cluster)
    with pytest.raises(AppendIdUnknownError):
        result(producer, producer.send_at(3, *messages("a"), append_id=ID))
    assert result(producer, producer.send_at(3, *messages("b"))) == (3, False)
    assert split(cluster.topics[LOG][0].batches[-1])[0].base_sequence == 0


@pytest.mark.parametrize(
    ("append_id", "unused_before", "match"),
    [(None, 0, "there is none"), (ID, -1, "an int from 0 on"), (ID, 6, "expected offset 5")],
)
def test_an_offset_before_which_an_id_is_unused_is_checked(
    cluster: FakeCluster, append_id: uuid.UUID | None, unused_before: int, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        append(cluster, 5, "a", append_id=append_id, unused_before=unused_before)


def test_a_broker_that_appends_again_what_it_has_forgotten_gets_no_such_append(cluster: FakeCluster) -> None:
    cluster.brokers[1].features[APPEND_IDS_FEATURE] = 1
    with pytest.raises(UnsupportedRequestError, match="version 2"):
        append(cluster, 0, "a")


@pytest.mark.parametrize("append_id", [b"", b"short", bytes(17)])
def test_an_append_id_has_16_bytes(cluster: FakeCluster, append_id: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        append(cluster, 0, "a", append_id=append_id)
