"""The hash of a key in Python is remembered for keys that repeat, and costs no memory for long ones."""

from __future__ import annotations

from holdfast_log.protocol.key_hash_loop import _REMEMBERED_MAX, _remembered_murmur2, murmur2


def test_the_hash_of_a_long_key_is_not_remembered() -> None:
    """Applications may send keys of 1 MB, each another: 16 thousand of them would take 16 GB."""
    before = _remembered_murmur2.cache_info().currsize
    for number in range(20):
        assert murmur2(b"%d" % number + b"x" * _REMEMBERED_MAX) >= 0
    assert _remembered_murmur2.cache_info().currsize == before
    key = b"a key that no other test uses".ljust(_REMEMBERED_MAX, b"x")
    murmur2(key)
    assert _remembered_murmur2.cache_info().currsize == before + 1
    hits = _remembered_murmur2.cache_info().hits
    assert murmur2(key) == murmur2(bytes(bytearray(key)))
    assert _remembered_murmur2.cache_info().hits == hits + 2
