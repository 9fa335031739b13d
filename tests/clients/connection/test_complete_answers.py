"""An answer has each thing that was asked for exactly once; with less or more it is no answer."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from typing import Any

import pytest

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.admin.topics import NewTopic
from holdfast_log.clients.connection.answers import check_answer
from holdfast_log.clients.connection.complete_answers import COMPLETE, COUNTED
from holdfast_log.clients.connection.response_limits import ELEMENTS_MAX, largest_answer
from holdfast_log.clients.errors import ClientError
from holdfast_log.clients.groups.committed_offsets import fetch_request
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.fields import Array, Fixed, Struct, fields_of
from holdfast_log.protocol.headers import decode_response
from holdfast_log.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast_log.protocol.messages.offset_fetch import OffsetFetchRequest
from holdfast_log.protocol.schema import MalformedMessage, TooManyElements, encode
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.test_hostile_brokers import requests, twist

NAME, NUMBER = "thing", 3
MIB = 1 << 20


def one_of(cls: type[Any]) -> Any:
    """A message with one element in each list, in which every name is NAME and every number NUMBER, but for
    error codes."""
    return cls(**{field.name: _value(field.type, field.name) for field in fields_of(cls)})


def _value(type_: Any, name: str) -> Any:
    match type_:
        case Array(element):
            return [_value(element, name)]
        case Struct(cls):
            return one_of(cls)
        case Fixed(name="uuid"):
            return uuid.UUID(int=0)
        case Fixed():
            return 0 if name == "error_code" else NUMBER
    return b"" if name.startswith("member_") or name == "records" else NAME


def case(name: str) -> tuple[Request[Any], Response]:
    """A request of an API, and its answer."""
    (api,) = [api for api in APIS.values() if api.name == name]
    return one_of(api.request), one_of(api.response)


def rows_of(response: Any) -> list[Any]:
    """The list with the row of the only thing that was answered."""
    for field in fields_of(type(response)):
        if isinstance(field.type, Array) and field.name != "topics":
            return list(getattr(response, field.name)) and getattr(response, field.name)
    found: list[Any] = response.topics
    return found


@pytest.mark.parametrize("name", sorted(COMPLETE))
def test_every_thing_is_answered_once_and_no_other(name: str) -> None:
    request, response = case(name)
    check_answer(request, response)

    rows = rows_of(response)
    rows *= 2
    with pytest.raises(MalformedMessage):
        check_answer(request, response)
    del rows[:]
    if name != "OffsetFetch":  # Without groups it is an answer of an old version, which is asked below.
        with pytest.raises(MalformedMessage, match="which was asked for"):
            check_answer(request, response)


@pytest.mark.parametrize("name", sorted(COMPLETE))
def test_things_of_other_names_are_no_answer(name: str) -> None:
    request, response = case(name)
    check_answer(request, response)
    other = _renamed(response)
    with pytest.raises(MalformedMessage):
        check_answer(request, other)


def _renamed(message: Any) -> Any:
    changes: dict[str, Any] = {}
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if value == NAME:
            changes[field.name] = "another"
        elif isinstance(value, list):
            changes[field.name] = [
                _renamed(each) if hasattr(type(each), "__wire_fields__") else each for each in value
            ]
    return replace(message, **changes)


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_results_without_names_are_as_many_as_the_things_asked_for(name: str) -> None:
    request, response = case(name)
    check_answer(request, response)
    rows = getattr(response, COUNTED[name][1])
    rows *= 2
    with pytest.raises(MalformedMessage, match="has 2 results for 1 things"):
        check_answer(request, response)
    del rows[:]
    with pytest.raises(MalformedMessage, match="has 0 results for 1 things"):
        check_answer(request, response)


@pytest.mark.parametrize("groups", [True, False])
def test_committed_offsets_without_one_of_the_partitions_are_no_answer(groups: bool) -> None:
    at = TopicPartition("t", 0)
    request = fetch_request("g", [at, TopicPartition("t", 1)])
    _, response = case("OffsetFetch")
    response = replace(response, groups=[]) if not groups else replace(response, topics=[])  # type: ignore[type-var]
    topics = response.groups[0].topics if groups else response.topics  # type: ignore[attr-defined]
    if groups:
        response.groups[0].group_id = "g"  # type: ignore[attr-defined]
    topics[0].name, topics[0].partitions[0].partition_index = "t", 0
    with pytest.raises(MalformedMessage, match=r"does not name \('t', 1\)"):
        check_answer(request, response)
    topics[0].partitions.append(replace(topics[0].partitions[0], partition_index=1))
    check_answer(request, response)
    check_answer(fetch_request("g", None), response)
    assert isinstance(request, OffsetFetchRequest)


def test_an_answer_that_fails_as_a_whole_may_have_no_rows() -> None:
    request, response = case("OffsetDelete")
    check_answer(request, replace(response, topics=[], error_code=ErrorCode.NOT_COORDINATOR))  # type: ignore[type-var]


def test_a_topic_that_the_answer_leaves_out_does_not_count_as_created() -> None:
    cluster = FakeCluster()
    cluster.add_topic("flights")

    def left_out(response: CreateTopicsResponse) -> CreateTopicsResponse:
        response.topics = response.topics[1:]
        return response

    end = twist(cluster, CreateTopicsResponse, left_out)
    properties = {"bootstrap.servers": cluster.bootstrap, "default.api.timeout.ms": 8_000}
    with Admin(properties, network=cluster, rng=random.Random(1)) as admin:
        refused = ""
        try:
            admin.create_topics([NewTopic("new", 1, 1)])
        except ClientError as error:
            refused = str(error)
        assert "CreateTopics: the answer does not name" in refused
        assert requests(cluster, CreateTopicsRequest) < 30
        end()
        admin.create_topics([NewTopic("newer", 1, 1)])


def test_an_answer_with_more_elements_than_a_client_decodes_in_time_is_refused_early() -> None:
    rows = [
        MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=0, replica_nodes=[], isr_nodes=[]
        )
    ] * 1000
    topic = MetadataResponseTopic(error_code=0, name="t", partitions=rows)
    version = MetadataRequest.api.max_version
    response = MetadataResponse(cluster_id="c", controller_id=1, brokers=[], topics=[topic] * 1100)
    frame = b"\x00\x00\x00\x01\x00" + encode(response, version)
    with pytest.raises(TooManyElements):
        decode_response(MetadataRequest, version, frame, ELEMENTS_MAX)


def test_the_metadata_of_some_topics_has_a_limit_by_their_number() -> None:
    def limit(*names: str) -> int:
        asked = [MetadataRequestTopic(name=name) for name in names]
        return largest_answer(MetadataRequest(topics=asked), 100, 64 * MIB)

    assert limit() == MIB
    assert limit("a") == 17 * MIB
    assert limit("a", "b", "c", "d") == 64 * MIB
    assert largest_answer(MetadataRequest(topics=None), 100, 64 * MIB) == 64 * MIB
