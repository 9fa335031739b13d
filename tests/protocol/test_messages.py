"""Every version of every message survives the way through its bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast_log.protocol.api import Request
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.schema import ProtocolMessage, decode_from, decode_in_steps, encode
from tests.protocol.strategies import every_version, messages, version_id

EVERY_VERSION = pytest.mark.parametrize(("cls", "version"), every_version(), ids=version_id)
QUICK = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


@EVERY_VERSION
def test_decoding_gives_back_what_was_encoded(cls: type[ProtocolMessage], version: int) -> None:
    @QUICK
    @given(messages(cls, version), st.binary(max_size=4))
    def round_trip(message: Any, other_bytes: bytes) -> None:
        encoded = encode(message, version)
        again, end = decode_from(cls, version, other_bytes + encoded + other_bytes, len(other_bytes))
        assert again == message
        assert end == len(other_bytes) + len(encoded)
        assert _decoded_in_steps(cls, version, encoded) == message

    round_trip()


def _decoded_in_steps(cls: type[ProtocolMessage], version: int, encoded: bytes) -> ProtocolMessage:
    steps = decode_in_steps(cls, version, memoryview(encoded), 0, len(encoded))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assert isinstance(end.value, cls)
            return end.value


def test_apis_are_known_by_their_keys_and_know_their_messages() -> None:
    for key, api in APIS.items():
        assert api.key == key
        assert issubclass(api.request, Request)
        assert api.request.api is api
        assert api.response.api is api
        assert api.request.__name__ == f"{api.name}Request"


def test_no_two_apis_share_a_key() -> None:
    requests = [cls for cls in Request.__subclasses__() if "api" in vars(cls)]
    keys = [cls.api.key for cls in requests]
    assert len(APIS) > 40
    assert len(set(keys)) == len(set(APIS)) == len(APIS)
