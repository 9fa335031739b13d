"""Decoding a request is little work: the limit of elements bounds it for every API, and what a long one takes
is done in steps.

It is counted in calls, of Python's functions and of compiled ones, because the time depends on what else the
machine does. A call and what follows it takes 0.2 µs on a quiet machine: all that are allowed take 20 ms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast_log.protocol import wire
from holdfast_log.protocol.api import Api
from holdfast_log.protocol.generated_decoders import STEP_BYTES, STEP_NUMBERS, uuid_of
from holdfast_log.protocol.headers import request_fields
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from holdfast_log.protocol.messages.list_groups import ListGroupsRequest
from holdfast_log.protocol.schema import ProtocolMessage, decode_from, decode_in_steps, encode
from tests.hostile.generator import World, elements_max, frame, served_apis, variants

CALLS_MAX = 100_000
STEP_CALLS_MAX = 2_000
REQUEST_BYTES = 4 << 20
WORLD = World(
    broker_id=1,
    topics=["many", *(f"topic-{number}" for number in range(300))],
    topic_ids=[UUID(int=number + 1) for number in range(301)],
    groups=[f"group-{number}" for number in range(200)],
)


def calls_of(act: Callable[[], object]) -> int:
    """How many calls `act` makes."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # What other tests have left would be finalized meanwhile.
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize("api", served_apis(), ids=lambda api: api.name)
def test_decoding_the_costliest_requests_takes_few_calls(api: Api) -> None:
    for version in {api.min_version, api.max_version}:
        for variant in variants(api, is_short=True):
            data = memoryview(bytearray(frame(WORLD, api, version, variant, 1, REQUEST_BYTES)[4:]))
            position = request_fields(data)[3]
            decode_from(api.request, version, data, position)  # The decoder is made by the first call.
            most = elements_max(api)
            calls = calls_of(partial(decode_from, api.request, version, data, position, most))
            assert calls <= CALLS_MAX, f"version {version}, {variant}"
            steps = decode_in_steps(api.request, version, data, position, most)
            next(decode_in_steps(api.request, version, data, position, most), None)  # So is this decoder.
            while steps.gi_frame is not None:
                calls = calls_of(partial(next, steps, None))
                assert calls <= STEP_CALLS_MAX, f"a step of version {version}, {variant}"


def steps_of(message: ProtocolMessage, version: int) -> tuple[int, Any]:
    """How many steps decoding the message takes, and what is decoded."""
    data = memoryview(bytearray(encode(message, version)))
    steps, count = decode_in_steps(type(message), version, data, 0, sys.maxsize), 1
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            return count, end.value


def test_no_step_copies_many_bytes_of_long_strings() -> None:
    strings = 100
    states = ["x" * wire.MAX_STRING_BYTES] * strings
    message = ListGroupsRequest(states_filter=states, types_filter=[])
    count, decoded = steps_of(message, 5)
    assert decoded == message
    assert count > strings * wire.MAX_STRING_BYTES / (STEP_BYTES + wire.MAX_STRING_BYTES)


def test_no_step_decodes_very_many_numbers() -> None:
    numbers = 10 * STEP_NUMBERS + 1
    topic = AddPartitionsToTxnTopic(name="t", partitions=list(range(numbers)))
    message = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
        transactions=[],
    )
    count, decoded = steps_of(message, 3)
    assert decoded == message
    assert count > 10


def test_an_id_is_the_same_as_the_constructors() -> None:
    for value in (uuid4(), UUID(int=0), UUID(int=2**128 - 1)):
        made = uuid_of(value.bytes)
        assert made == value and hash(made) == hash(value) and repr(made) == repr(value)
        assert made.is_safe is value.is_safe
        with pytest.raises(TypeError):
            made.int = 1  # type: ignore[misc]
