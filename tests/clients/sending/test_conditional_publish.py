"""Messages that expect an offset (KIP-27), against brokers in memory."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from holdfast_log.clients.errors import (
    ConfigError,
    RecordTooLargeError,
    TopicRecreatedError,
    UnsupportedRequestError,
)
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.conditions import FEATURE
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.errors import BrokerError, ErrorCode, OffsetMismatchError
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.sending.settling import settle

LOG = "log"


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.brokers[1].features[FEATURE] = 1
    cluster.add_topic(LOG, 2)
    return cluster


def producer_on(cluster: FakeCluster, **properties: Any) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, **properties}
    return Producer(given, network=cluster.network(), rng=random.Random(1), is_threaded=False)


def at(offset: int, value: str = "x", partition: int = 0) -> Message:
    return Message(LOG, value=value, partition=partition, offset=offset)


def values_in(cluster: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.topics[LOG][partition].records()]


def sent(cluster: FakeCluster) -> list[PartitionProduceData]:
    """The requests' data for partition 0, in order."""
    return [
        data
        for request in cluster.brokers[1].requests
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for data in topic.partition_data
        if data.index == 0
    ]


def test_a_message_is_written_at_the_offset_that_it_expects(cluster: FakeCluster) -> None:
    """ "The producer is allowed to attach an 'expected offset' to each published message" (KIP-27)."""
    producer = producer_on(cluster)
    first = producer.send(at(0, "a"))
    assert settle(producer, 10_000)
    second = producer.send(at(1, "b"))
    assert settle(producer, 10_000)

    assert (first.offset, second.offset) == (0, 1)
    assert [data.expected_offset for data in sent(cluster)] == [0, 1]


def test_a_mismatch_has_the_offset_at_which_the_log_ends(cluster: FakeCluster) -> None:
    """ "If that offset does not match the upcoming offset at the time the message is appended to the log, the
    broker refuses the publish request"; "the publish will have no effect"; "add a new error code and
    exception type for an offset mismatch" (KIP-27)."""
    producer = producer_on(cluster)
    producer.send(Message(LOG, value="a", partition=0), Message(LOG, value="b", partition=0))
    settle(producer, 10_000)

    late = producer.send(at(1, "late"))
    assert settle(producer, 10_000)

    assert isinstance(late.error, OffsetMismatchError)
    assert (late.error.next_offset, late.error.last_leader_epoch) == (2, 0)
    again = producer.send(at(2, "c"))
    assert settle(producer, 10_000)
    assert again.offset == 2
    assert values_in(cluster) == [b"a", b"b", b"c"]


def test_messages_of_one_send_at_are_one_batch_all_or_none(cluster: FakeCluster) -> None:
    """ "It batches multiple operations to Kafka in a single produce request. Each record is assigned an
    expected offset, starting with the leader's upcoming offset"; "in no case will we ever skip over messages
    in the batch, or change the order" (KIP-27)."""
    producer = producer_on(cluster)
    messages = [Message(LOG, value=str(number), partition=0) for number in range(5)]
    wrong = producer.send_at(3, *messages)
    settle(producer, 10_000)
    right = producer.send_at(0, *messages)
    settle(producer, 10_000)

    assert isinstance(wrong.error, OffsetMismatchError)
    assert right.error is None
    assert [(data.expected_offset, data.expected_leader_epoch) for data in sent(cluster)] == [
        (3, -1),
        (0, -1),
    ]
    assert values_in(cluster) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_send_at_that_is_larger_than_a_batch_is_still_one_batch(cluster: FakeCluster) -> None:
    producer = producer_on(cluster, **{"batch.size": 1000})
    first = producer.send_at(0, Message(LOG, value="a", partition=0))
    large = producer.send_at(1, *[Message(LOG, value="b" * 900, partition=0)] * 5)
    assert settle(producer, 10_000)

    assert first.error is None and large.error is None
    assert [(data.expected_offset, len(split(data.records or b""))) for data in sent(cluster)] == [
        (0, 1),
        (1, 1),
    ]
    assert len(values_in(cluster)) == 6


def test_a_send_at_that_fits_into_no_request_is_refused_before_anything_is_sent(cluster: FakeCluster) -> None:
    producer = producer_on(cluster, **{"max.request.size": 2000})
    refused = producer.send_at(0, *[Message(LOG, value="b" * 900, partition=0)] * 5)
    assert settle(producer, 10_000)

    assert isinstance(refused.error, RecordTooLargeError)
    assert "max.request.size" in str(refused.error) and "5 messages" in str(refused.error)
    assert sent(cluster) == []


def test_a_send_at_that_is_too_large_for_the_broker_is_not_divided(cluster: FakeCluster) -> None:
    cluster.topics[LOG][0].max_batch_bytes = 3000
    producer = producer_on(cluster)
    refused = producer.send_at(0, *[Message(LOG, value="b" * 900, partition=0)] * 5)
    assert settle(producer, 10_000)

    error = refused.error
    assert isinstance(error, BrokerError) and error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in str(error)
    assert values_in(cluster) == []


def test_a_batch_that_is_too_large_for_the_broker_is_divided_between_calls_of_send_at(
    cluster: FakeCluster,
) -> None:
    cluster.topics[LOG][0].max_batch_bytes = 3000
    producer = producer_on(cluster)
    pairs = [
        producer.send_at(offset, *[Message(LOG, value="b" * 900, partition=0)] * 2) for offset in (0, 2, 4)
    ]
    assert settle(producer, 10_000)

    assert [pair.error for pair in pairs] == [None, None, None]
    assert [data.expected_offset for data in sent(cluster)] == [0, 0, 2, 2, 4]
    assert len(values_in(cluster)) == 6


def test_a_condition_on_a_topic_that_was_created_again_is_refused(cluster: FakeCluster) -> None:
    """The new log may end at the expected offset by chance."""
    producer, other = producer_on(cluster), producer_on(cluster)
    producer.send(at(0), at(1), at(2))
    assert settle(producer, 10_000)
    cluster.add_topic(LOG, 2)
    other.send(*[Message(LOG, value="new", partition=0)] * 3)
    assert settle(other, 10_000)

    refused, behind = producer.send(at(3)), producer.send(at(4))
    assert settle(producer, 10_000)

    assert isinstance(refused.error, TopicRecreatedError) and isinstance(behind.error, TopicRecreatedError)
    assert values_in(cluster) == [b"new"] * 3
    again = producer.send(at(3, "again"))
    assert settle(producer, 10_000)
    assert again.error is None and len(values_in(cluster)) == 4


def test_a_condition_may_name_the_topic_that_it_means(cluster: FakeCluster) -> None:
    """An offset that an earlier process has stored may be one of a topic that was deleted since."""
    earlier = cluster.topic_id(LOG)
    cluster.add_topic(LOG, 2)
    present = cluster.topic_id(LOG)
    assert earlier != present
    producer = producer_on(cluster)

    refused = producer.send_at(0, Message(LOG, value="x", partition=0), topic_id=earlier)
    assert settle(producer, 10_000)
    accepted = producer.send_at(0, Message(LOG, value="y", partition=0), topic_id=present)
    assert settle(producer, 10_000)

    assert isinstance(refused.error, TopicRecreatedError)
    assert accepted.error is None and values_in(cluster) == [b"y"]


def test_a_condition_may_name_a_topic_that_is_newer_than_the_metadata(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    producer.send(at(0))
    assert settle(producer, 10_000)
    cluster.add_topic(LOG, 2)
    present = cluster.topic_id(LOG)

    response = producer.send_at(0, Message(LOG, value="y", partition=0), topic_id=present)
    later = producer.send_at(1, Message(LOG, value="z", partition=0))
    assert settle(producer, 10_000)

    assert response.error is None and later.error is None
    assert values_in(cluster) == [b"y", b"z"]


def test_messages_that_name_different_topics_of_one_name_do_not_share_a_batch(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    present = cluster.topic_id(LOG)
    first = producer.send_at(0, Message(LOG, value="x", partition=0), topic_id=present)
    second = producer.send_at(1, Message(LOG, value="y", partition=0), topic_id=UUID(int=7))
    assert settle(producer, 10_000)
    assert first.error is None and isinstance(second.error, TopicRecreatedError)
    assert values_in(cluster) == [b"x"]


def test_a_condition_waits_for_a_broker_that_does_not_know_yet_that_a_topic_was_created_again(
    cluster: FakeCluster,
) -> None:
    producer = producer_on(cluster)
    cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.INCONSISTENT_TOPIC_ID)
    response = producer.send(at(0))
    assert settle(producer, 10_000)
    assert response.error is None and values_in(cluster) == [b"x"]


def test_the_epoch_of_the_last_record_may_be_named(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    producer.send_at(0, Message(LOG, value="a", partition=0), last_leader_epoch=7)
    settle(producer, 10_000)
    assert sent(cluster)[0].expected_leader_epoch == 7


def test_a_refusal_fails_queued_messages_and_no_later_ones(cluster: FakeCluster) -> None:
    """ "Poisoning": messages 6, 7 and 8 depend on 5, so none of them may be written if 5 is refused."""
    producer = producer_on(cluster, **{"batch.size": 1})
    behind = [producer.send(at(offset, "behind")) for offset in (5, 0, 1)]
    other = producer.send(Message(LOG, value="other", partition=1))
    assert settle(producer, 10_000)

    assert [type(each.error) for each in behind] == [OffsetMismatchError] * 3
    assert values_in(cluster) == []
    assert other.offset == 0
    after = producer.send(at(0, "after"))
    settle(producer, 10_000)
    assert after.offset == 0


def stamps(cluster: FakeCluster) -> list[tuple[int, int]]:
    """(producer epoch, first sequence) of each batch sent for partition 0."""
    headers = [split(bytearray(bytes(data.records)))[0] for data in sent(cluster) if data.records]
    return [(header.producer_epoch, header.base_sequence) for header in headers]


def test_a_refusal_costs_neither_an_epoch_nor_numbers(cluster: FakeCluster) -> None:
    """A refused batch is certainly not written, so the next batch reuses its sequence numbers. A new epoch
    for each refusal would use up epochs, because racing applications are refused often."""
    producer = producer_on(cluster, **{"batch.size": 1})
    producer.send(at(0))
    settle(producer, 10_000)
    for _ in range(3):
        lost = [producer.send(at(offset)) for offset in (7, 8)]
        settle(producer, 10_000)
        assert [type(each.error) for each in lost] == [OffsetMismatchError] * 2
    won = [producer.send(at(offset)) for offset in (1, 2)]
    settle(producer, 10_000)
    assert [each.offset for each in won] == [1, 2]
    assert stamps(cluster) == [(0, 0), *[(0, 1), (0, 2)] * 4]


def test_sequence_numbers_of_a_batch_that_may_arrive_late_are_not_used_again(cluster: FakeCluster) -> None:
    """The first attempt has no answer. If it arrived late, a batch with the same numbers would be its
    duplicate."""
    producer = producer_on(cluster)
    cluster.brokers[1].fail_next(ProduceRequest, "cut")
    lost = producer.send(at(7))
    settle(producer, 60_000)
    assert isinstance(lost.error, OffsetMismatchError)
    won = producer.send(at(0))
    settle(producer, 10_000)
    assert won.offset == 0
    assert stamps(cluster)[-2:] == [(0, 0), (1, 0)]


def test_a_batch_refused_because_of_another_partition_is_sent_again(cluster: FakeCluster) -> None:
    """ "Refuse the entire produce request if any of the offsets don't match" (KIP-27): the producer itself
    repeats batches that matched."""
    producer = producer_on(cluster, retries=1)
    wrong = producer.send(at(9))
    good = [producer.send(at(0, "g", partition=1)), producer.send(at(1, "h", partition=1))]
    assert settle(producer, 10_000)

    assert isinstance(wrong.error, OffsetMismatchError)
    assert [each.offset for each in good] == [0, 1]
    assert values_in(cluster, 1) == [b"g", b"h"]


@pytest.mark.parametrize("how", ["cut", "cut after", ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_retry_answers_the_original_offset(cluster: FakeCluster, how: str | ErrorCode) -> None:
    producer = producer_on(cluster, **{"batch.size": 1})
    cluster.brokers[1].fail_next(ProduceRequest, how)
    responses = [producer.send(at(offset, str(offset))) for offset in range(4)]
    assert settle(producer, 60_000)

    assert [each.offset for each in responses] == [0, 1, 2, 3]
    assert values_in(cluster) == [b"0", b"1", b"2", b"3"]


def test_a_retriable_refusal_is_tried_again(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    response = producer.send(at(0))
    assert settle(producer, 60_000)
    assert response.offset == 0
    assert [data.attempt for data in sent(cluster)] == [0, 1]


def test_batches_without_a_condition_say_so_in_their_base_offset(cluster: FakeCluster) -> None:
    """ "Add a new `offset` field to the `ProduceRecord` class, with a default value of `-1`"; "using the
    value of that field as the offset for that message in the outgoing message set. (Or the sigil value -1, if
    unspecified.)" (KIP-27): for topics with `check.expected.offsets`."""
    assert Message(LOG).offset == -1
    producer = producer_on(cluster)
    producer.send(Message(LOG, value="any", partition=0))
    settle(producer, 10_000)
    producer.send(at(1))
    settle(producer, 10_000)
    offsets = [split(bytearray(bytes(data.records)))[0].base_offset for data in sent(cluster) if data.records]
    assert offsets == [-1, 1]


def test_a_message_can_be_sent_any_number_of_times_and_is_written_once(cluster: FakeCluster) -> None:
    """ "A producer can re-send a message indefinitely and be sure that at most one of those attempts will
    succeed" (KIP-27)."""
    producer = producer_on(cluster)
    attempts = [producer.send(at(0, "once"))]
    for _ in range(5):
        assert settle(producer, 10_000)
        attempts.append(producer.send(at(0, "once")))
    assert settle(producer, 10_000)
    assert [attempt.error is None for attempt in attempts] == [True] + [False] * 5
    assert values_in(cluster) == [b"once"]


def test_one_of_two_producers_that_expect_the_same_offset_fails(cluster: FakeCluster) -> None:
    """ "If two producers accidentally write to the end of the partition at once, we can be certain that at
    least one of them will fail" (KIP-27)."""
    producers = [producer_on(cluster) for _ in range(2)]
    responses = [producer.send(at(0, name)) for producer, name in zip(producers, "ab", strict=True)]
    for _ in range(20):
        for producer in producers:
            producer.turn(1)
    assert all(response.done for response in responses)
    assert [response.error is None for response in responses].count(True) == 1
    assert len(values_in(cluster)) == 1


def test_an_interrupted_load_resumes_with_each_message_once(cluster: FakeCluster) -> None:
    """ "Even if the list is much larger than the buffer size or the producer has to be restarted, each
    message will be appended to the log just once" (KIP-27)."""
    values = [f"message {number}" for number in range(200)]
    faults: list[str | ErrorCode] = ["cut", "cut after", ErrorCode.NOT_LEADER_OR_FOLLOWER]
    position = 0
    while position < len(values):
        producer = producer_on(cluster, **{"batch.size": 200, "buffer.memory": 5000})
        if faults:
            cluster.brokers[1].fail_next(ProduceRequest, faults.pop())
        responses = [producer.send(at(offset, values[offset])) for offset in range(position, len(values))]
        for _ in range(20):
            producer.turn(1)
        producer.close(0)  # The load is interrupted here: it does not wait for batches in flight.
        mismatches = [each.error for each in responses if isinstance(each.error, OffsetMismatchError)]
        assert not mismatches or mismatches[0].next_offset > position
        position = cluster.topics[LOG][0].end_offset
    assert values_in(cluster) == [value.encode() for value in values]


def test_a_first_write_succeeds_only_if_all_records_were_read(cluster: FakeCluster) -> None:
    """ "It can be sure that it's seen all of the messages in that partition at the moment it does its first
    (successful) write" (KIP-27)."""
    store, other = producer_on(cluster), producer_on(cluster)
    seen = len(values_in(cluster))
    other.send(Message(LOG, value="unseen", partition=0))
    settle(other, 10_000)
    while True:
        first = store.send(at(seen, "mine"))
        settle(store, 10_000)
        if first.error is None:
            break
        assert isinstance(first.error, OffsetMismatchError)
        # It reads the records that it has not seen.
        seen = len(values_in(cluster)[: first.error.next_offset])
    assert values_in(cluster) == [b"unseen", b"mine"] and seen == first.offset == 1


def test_a_broker_without_conditions_gets_no_conditional_message(cluster: FakeCluster) -> None:
    """ "New clients will work with the existing version of the server" (KIP-27)."""
    del cluster.brokers[1].features[FEATURE]
    producer = producer_on(cluster)
    refused = producer.send(at(0))
    plain = producer.send(Message(LOG, value="plain", partition=0))
    assert settle(producer, 10_000)

    assert isinstance(refused.error, UnsupportedRequestError)
    assert plain.offset == 0
    assert split(bytearray(bytes(sent(cluster)[0].records or b"")))[0].base_offset == 0


def test_a_conditional_message_needs_offset_partition_and_idempotence(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    with pytest.raises(ValueError, match="must name both"):
        producer.send(Message(LOG, value="x", offset=3))
    with pytest.raises(ValueError, match="the offset of a message for log must be an offset, or -1 for any"):
        producer.send(at(-2))
    with pytest.raises(ValueError, match="same topic and partition"):
        producer.send_at(0, at(0), at(0, partition=1))
    with pytest.raises(ConfigError, match=r"enable\.idempotence"):
        producer_on(cluster, **{"enable.idempotence": False}).send(at(0))


def test_messages_with_and_without_a_condition_share_no_batch(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    responses = [
        producer.send(Message(LOG, value="a", partition=0)),
        producer.send(at(1, "b")),
        producer.send(at(2, "c")),
        producer.send(Message(LOG, value="d", partition=0)),
    ]
    assert settle(producer, 10_000)
    assert [each.offset for each in responses] == [0, 1, 2, 3]
    assert [data.expected_offset for data in sent(cluster)] == [-1, 1, -1]
