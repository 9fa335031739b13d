"""No bytes make a decoder do anything but give a message or raise MalformedMessage, in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast_log.protocol.headers import decode_request_header
from holdfast_log.protocol.schema import MalformedMessage, ProtocolMessage, decode, encode
from tests.protocol.fuzz import crowded, decode_frame, peak_memory, run
from tests.protocol.strategies import every_version, version_id

FRAMES = 30_000
"""`python -m tests.protocol.fuzz` throws a million."""
MEMORY_PER_BYTE = 100
"""The dearest thing that a byte can say is "one more empty element": a Python object of a few words."""


@pytest.mark.parametrize("seed", [1, 20_260_101])
def test_damaged_frames_are_malformed_or_still_messages(seed: int) -> None:
    outcomes = run(FRAMES // 2, seed)
    assert outcomes.total() == FRAMES // 2
    assert outcomes["malformed"] > FRAMES // 20
    assert outcomes["message"] > FRAMES // 20


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(every_version()), st.binary(max_size=300))
def test_random_bytes_are_malformed_or_a_message(
    case: tuple[type[ProtocolMessage], int], body: bytes
) -> None:
    cls, version = case
    assert decode_frame(cls, version, body) in ("message", "malformed")


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60))
def test_random_request_headers_are_malformed_or_a_header(frame: bytes) -> None:
    try:
        _header, position = decode_request_header(frame)
    except MalformedMessage:
        return
    assert 8 <= position <= len(frame)


@pytest.mark.parametrize(("cls", "version"), every_version(), ids=version_id)
def test_memory_stays_in_proportion_to_the_bytes(cls: type[ProtocolMessage], version: int) -> None:
    body = encode(crowded(cls, version, 300), version)
    decode(cls, version, body)  # so that the decoder exists, and the caches are filled
    assert peak_memory(cls, version, body) < MEMORY_PER_BYTE * len(body) + 1000
