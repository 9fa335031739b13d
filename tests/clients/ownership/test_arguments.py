"""Arguments of a wrong type, or in the wrong order, fail at the call, with what is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.clients.exclusive_consumer import ExclusiveConsumer
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.protocol.topic_partition import TopicPartition

GIVEN = {"bootstrap.servers": "localhost:9092"}
PARTITION = TopicPartition("log", 0)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: Lease(GIVEN, ["leader"], "group"), r"group must be a str.*, not list \['leader'\]"),
        (lambda: Lease(GIVEN, "group", "leader"), "resources must be a list, .* not str 'leader'"),
        (lambda: Lease(GIVEN, "group", PARTITION), "resources must be a list, .* not TopicPartition"),
        (lambda: Lease(GIVEN, "group", [7]), r"only names \(str\) and TopicPartition.*, not int 7"),
        (lambda: Lease(GIVEN, "group", ["leader"], owner_id=7), "owner_id must be a str, or None, not int 7"),
        (lambda: ExclusiveConsumer(GIVEN, [PARTITION], "group"), r"own_group must be a str.*, not list"),
        (lambda: ExclusiveConsumer(GIVEN, "group", ["log"]), "only TopicPartition.*, not str 'log'"),
        (lambda: ExclusiveConsumer(GIVEN, "group", PARTITION), "partitions must be a list"),
        (lambda: ExclusiveProducer(GIVEN, ["log"]), "topic must be a str that is not empty, not list"),
        (lambda: ExclusiveProducer(GIVEN, "log", 1), "mode must be a ProducerAccessMode, not int 1"),
        (
            lambda: ExclusiveProducer(GIVEN, "log", partitions=["0"]),
            r"partition numbers \(int\), not str",
        ),
        (lambda: ExclusiveProducer(GIVEN, "log", partitions=0), "partitions must be a list.* not int 0"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(call: Callable[[], Any], expected: str) -> None:
    with pytest.raises(TypeError, match=expected):
        call()
