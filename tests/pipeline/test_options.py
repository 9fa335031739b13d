"""Options of spark.read.format("holdfast"), and the errors for invalid ones."""

from __future__ import annotations

import pytest

from holdfast_log.pipeline.boundaries import EARLIEST, LATEST, Offsets, Timestamps
from holdfast_log.pipeline.option_table import OptionError
from holdfast_log.pipeline.options import TopicSelection, includes_headers, read_options
from holdfast_log.protocol.topic_partition import TopicPartition

BOOTSTRAP = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
FLIGHTS = {**BOOTSTRAP, "subscribe": "flights"}


def test_a_topic_and_a_bootstrap_address_are_enough() -> None:
    options = read_options(FLIGHTS)

    assert options.topics == TopicSelection(names=("flights",))
    assert options.start == Offsets(default=EARLIEST)
    assert options.end == Offsets(default=LATEST)
    assert options.client == {"bootstrap.servers": "127.0.0.1:9092"}
    assert options.fail_on_data_loss


def test_option_names_are_accepted_in_any_case_because_spark_lowers_them() -> None:
    options = read_options({**FLIGHTS, "includeheaders": "true", "FAILONDATALOSS": "False"})

    assert options.include_headers
    assert not options.fail_on_data_loss


def test_several_topics_are_read_each_once() -> None:
    assert read_options({**BOOTSTRAP, "subscribe": "b, a ,b"}).topics == TopicSelection(names=("b", "a"))


def test_partitions_can_be_assigned() -> None:
    topics = read_options({**BOOTSTRAP, "assign": '{"b": [1], "a": [2, 0, 2]}'}).topics

    assert topics.partitions == (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))


def test_offsets_can_be_given_for_each_partition() -> None:
    options = read_options(
        {
            **FLIGHTS,
            "startingOffsets": '{"flights": {"0": 23, "1": -2}}',
            "endingOffsets": '{"flights": {"0": 42, "1": -1}}',
        }
    )

    zero, one = TopicPartition("flights", 0), TopicPartition("flights", 1)
    assert options.start == Offsets(default=None, partitions={zero: 23, one: EARLIEST})
    assert options.end == Offsets(default=None, partitions={zero: 42, one: LATEST})


def test_times_can_be_given_for_all_or_for_each_partition() -> None:
    options = read_options(
        {**FLIGHTS, "startingTimestamp": "1000", "endingOffsetsByTimestamp": '{"flights": {"0": 2000}}'}
    )

    assert options.start == Timestamps(default_ms=1000)
    assert options.end == Timestamps(default_ms=None, partitions_ms={TopicPartition("flights", 0): 2000})


def test_properties_of_the_consumer_are_passed_on_without_their_prefix() -> None:
    options = read_options({**FLIGHTS, "kafka.fetch.max.bytes": "1000", "Kafka.Client.Id": "job"})

    assert options.client["fetch.max.bytes"] == "1000"
    assert options.client["client.id"] == "job"


def test_headers_are_known_before_anything_else_is_checked() -> None:
    assert includes_headers({"includeheaders": "true"})
    assert not includes_headers({"no such option": "1"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": "flights"}, "kafka.bootstrap.servers is missing"),
        ({**BOOTSTRAP}, "no topic to read"),
        ({**BOOTSTRAP, "subscribe": " , "}, "names no topic"),
        ({**FLIGHTS, "assign": '{"flights": [0]}'}, "subscribe and assign contradict each other"),
        ({**FLIGHTS, "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({**FLIGHTS, "bootstrap.servers": "x"}, "did you mean kafka.bootstrap.servers?"),
        ({**FLIGHTS, "colour": "red"}, "the options are subscribe, subscribePattern"),
        ({**FLIGHTS, "startingOffsets": "latest"}, "cannot be latest"),
        (
            {**FLIGHTS, "startingOffsets": "soon"},
            "expected earliest or latest, or an offset for each partition",
        ),
        ({**FLIGHTS, "startingOffsets": '{"flights": {"0": -1}}'}, "cannot be latest"),
        ({**FLIGHTS, "endingOffsets": '{"flights": {"0": -2}}'}, "cannot be earliest"),
        ({**FLIGHTS, "endingOffsets": '{"flights": {"0": "7"}}'}, 'expected {"topic": {"0": 23, "1": 42}}'),
        ({**FLIGHTS, "endingOffsets": '{"flights": 7}'}, 'expected {"topic": {"0": 23, "1": 42}}'),
        ({**FLIGHTS, "endingOffsets": '{"flights": {"x": 7}}'}, 'expected {"topic": {"0": 23, "1": 42}}'),
        ({**FLIGHTS, "endingOffsets": "[1]"}, "expected latest, or an offset for each partition"),
        (
            {**FLIGHTS, "startingOffsets": "earliest", "startingTimestamp": "1"},
            "startingOffsets and startingTimestamp contradict each other",
        ),
        ({**FLIGHTS, "startingTimestamp": "-5"}, "startingTimestamp='-5' is not allowed"),
        (
            {**FLIGHTS, "startingOffsetsByTimestamp": '{"flights": {"0": -2}}'},
            'expected {"topic": {"0": 23, "1": 42}}',
        ),
        ({**FLIGHTS, "minPartitions": "0"}, "minPartitions='0' is not allowed"),
        ({**FLIGHTS, "includeHeaders": "perhaps"}, "expected true or false"),
        ({**BOOTSTRAP, "subscribePattern": "("}, "a regular expression"),
        ({**BOOTSTRAP, "assign": '{"flights": ["0"]}'}, 'expected {"topic": [0, 1]}'),
        ({**BOOTSTRAP, "assign": "{}"}, "assign names no partition"),
    ],
)
def test_an_invalid_option_is_an_error_with_the_reason(given: dict[str, str], expected: str) -> None:
    with pytest.raises(OptionError) as raised:
        read_options(given)

    assert expected in str(raised.value)
