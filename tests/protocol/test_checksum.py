"""CRC-32C, by both of its libraries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.protocol import checksum
from holdfast_log.protocol.checksum import Checksum
from holdfast_log.protocol.wire import Buffer


@pytest.mark.parametrize("crc32c", [checksum.by_instruction(), checksum.by_table()])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_known_values(crc32c: Checksum, data: bytes, expected: int) -> None:
    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(data))):
        assert crc32c(buffer) == expected


@given(st.binary(), st.binary())
def test_both_libraries_agree_and_can_be_continued(first: bytes, second: bytes) -> None:
    values: set[int] = set()
    for crc32c in (checksum.by_instruction(), checksum.by_table()):
        rest: Buffer = memoryview(second)
        values |= {crc32c(first + second), crc32c(rest, crc32c(first))}
    assert len(values) == 1


def test_crcmod_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Checksum:
        raise ImportError

    monkeypatch.setattr(checksum, "by_instruction", missing)
    assert checksum._fastest()(b"123456789") == 0xE3069283
