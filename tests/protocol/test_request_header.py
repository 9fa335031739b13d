"""The header of a request read by compiled code and in Python: the same fields, the same refusals."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.headers import (
    decode_request_header,
    flexible_requests,
    form_of,
    key_and_version,
    request_fields,
)
from holdfast_log.protocol.wire import MalformedMessage


@pytest.fixture(scope="module")
def compiled(extension: Callable[[str], ModuleType]) -> ModuleType:
    return extension("_wire")


KNOWN = st.sampled_from(sorted(APIS)).flatmap(
    lambda key: st.tuples(st.just(key), st.sampled_from(list(APIS[key].versions)))
)
FORMS = st.one_of(KNOWN, st.tuples(st.integers(-(2**15), 2**15 - 1), st.integers(-(2**15), 2**15 - 1)))
CLIENT_IDS = st.one_of(st.just(b""), st.text(max_size=9).map(str.encode), st.binary(max_size=9))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Headers with client ids of any bytes and a wrong length, tagged fields or none, cut anywhere."""
    (key, version), client_id = draw(FORMS), draw(CLIENT_IDS)
    length = draw(st.one_of(st.just(len(client_id)), st.integers(-(2**15), 2**15 - 1)))
    correlation_id = draw(st.integers(-(2**31), 2**31 - 1))
    tail = draw(st.sampled_from([b"", b"\0", b"\0body", b"\1\7\2ab", b"\1\7\x7f", b"\xff\xff\xff\xff\xff\1"]))
    frame = struct.pack(">hhih", key, version, correlation_id, length) + client_id + tail
    return frame[: draw(st.one_of(st.just(len(frame)), st.integers(0, len(frame))))]


@given(frame=st.one_of(frames(), st.binary(max_size=30)))
def test_compiled_and_python_read_the_same_fields(compiled: ModuleType, frame: bytes) -> None:
    found = compiled.request_fields(memoryview(frame), flexible_requests())
    try:
        expected = request_fields(frame)
    except MalformedMessage:
        assert found is None
        return
    has_tags = expected[0] in flexible_requests() and frame[client_id_end(frame)] != 0
    assert found == (None if has_tags else expected)


def client_id_end(frame: bytes) -> int:
    (length,) = struct.unpack_from(">h", frame, 8)
    return int(10 + max(0, length))


@given(form=FORMS)
def test_a_form_is_the_first_four_bytes(form: tuple[int, int]) -> None:
    assert struct.pack(">i", form_of(*form)) == struct.pack(">hh", *form)
    assert key_and_version(form_of(*form)) == form
    header, _position = decode_request_header(struct.pack(">hhih", *form, 7, -1) + bytes(1))
    assert (header.api_key, header.api_version) == form
