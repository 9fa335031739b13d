"""The partition of a key by Kafka's default, so that equal keys go to one partition from every client; and
the hash of a name, by which its coordinator is found.

The loops are in the compiled `protocol._key_hash` if it is installed, else in `protocol.key_hash_loop`; the
environment variable HOLDFAST_PURE_PYTHON selects the latter.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType

from holdfast_log.protocol.records import PURE_PYTHON_VARIABLE
from holdfast_log.protocol.wire import Buffer


def _fastest_loop() -> ModuleType:
    if not os.environ.get(PURE_PYTHON_VARIABLE):
        try:
            from holdfast_log.protocol import _key_hash
        except ImportError:
            pass
        else:
            return _key_hash
    from holdfast_log.protocol import key_hash_loop

    return key_hash_loop


_loop = _fastest_loop()

murmur2: Callable[[bytes], int] = _loop.murmur2
"""The 32-bit MurmurHash2 of a key with the seed that Kafka's Java client uses, as an unsigned number."""


java_hash: Callable[[str], int] = _loop.java_hash
"""Java's String.hashCode, computed over UTF-16 code units, as an unsigned number."""


def places(
    ends: Buffer,
    data: Buffer,
    valid: Buffer | None,
    start: int,
    rows: int,
    partitions: int,
    without_key: int,
) -> bytes:
    """The partition of each of `rows` keys of an Arrow column from row `start` on, as int32 numbers.

    `ends`, `data` and `valid` are the column's buffers: see `protocol.key_hash_loop.places`. A row without a
    key gets `without_key`. Raises ValueError for buffers that are too short.
    """
    found: bytes = _loop.places(ends, data, valid, start, rows, partitions, without_key)
    return found
