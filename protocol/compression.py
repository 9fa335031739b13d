"""Compression of record batches: gzip, snappy, lz4 and zstd, each with a limit on the decompressed size.

The framing is Kafka's: gzip members, lz4 frames of independent blocks, zstd frames, and for snappy the
chunked form of the xerial library (a bare snappy block, as some clients write, is read too). A compressed
kilobyte can decompress to many megabytes, so `decompress` takes a limit.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import cramjam

from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.wire import Buffer

DEFAULT_LIMIT = 64 * 1024 * 1024
"""Limit of a decompressed batch, in bytes, for callers that give none."""


def codec_named(name: str) -> Compression:
    """The codec that `compression.type` calls `name`. Raises ValueError, which lists the known names."""
    try:
        return Compression[name.upper()]
    except KeyError:
        raise ValueError(f"one of {', '.join(codec.name.lower() for codec in Compression)}") from None


class DecompressionError(ValueError):
    """The data is damaged, or exceeds the limit when decompressed."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed by `codec`. `level` is for gzip and zstd, None for their default; other codecs
    ignore it."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return _compress_gzip(data, level)
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            return _compress_lz4(data)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(
    codec: Compression, data: Buffer, limit: int = DEFAULT_LIMIT
) -> bytes | bytearray | memoryview:
    """`data` decompressed; with `Compression.NONE`, `data` itself without a copy.

    Raises `DecompressionError` if the data is damaged or exceeds `limit` bytes decompressed. At most a small
    multiple of `limit` is allocated.
    """
    match codec:
        case Compression.NONE:
            if len(data) > limit:
                raise DecompressionError(f"{len(data)} bytes; at most {limit} are allowed")
            return data
        case Compression.GZIP:
            return _decompress_gzip(data, limit)
        case Compression.SNAPPY:
            return _decompress_snappy(data, limit)
        case Compression.LZ4:
            return _decompress_into(cramjam.lz4.decompress_into, data, limit)
        case Compression.ZSTD:
            return _decompress_into(cramjam.zstd.decompress_into, data, limit)


# gzip -------------------------------------------------------------------------------------------------

_GZIP_WINDOW = 31  # 15 bits of window, plus 16 for the gzip wrapping


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    members: list[bytes] = []
    left = limit
    rest: Buffer = data
    while len(rest):
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            # One byte more than allowed, to distinguish "exactly the limit" from "more than the limit".
            members.append(member.decompress(rest, left + 1))
        except zlib.error as error:
            raise DecompressionError(f"gzip: {error}") from None
        left -= len(members[-1])
        if left < 0:
            raise DecompressionError(f"gzip: more than {limit} bytes")
        if not member.eof:
            raise DecompressionError("gzip: the data ends early")
        rest = member.unused_data
    return members[0] if len(members) == 1 else b"".join(members)


# snappy -----------------------------------------------------------------------------------------------

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, and the oldest version that can read it
_XERIAL_BLOCK_SIZE = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")


def _compress_snappy(data: Buffer) -> bytes:
    import snappy  # On first use: few clients compress with it.

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK_SIZE])
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes | bytearray:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit)
    blocks: list[bytes | bytearray] = []
    left = limit
    position = len(_XERIAL_HEADER)
    while position < len(view):
        start = position + _BLOCK_LENGTH.size
        if start > len(view):
            raise DecompressionError("snappy: the data ends early")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position = start + length
        if length < 0 or position > len(view):
            raise DecompressionError("snappy: the data ends early")
        blocks.append(_decompress_snappy_block(view[start:position], left))
        left -= len(blocks[-1])
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, limit: int) -> bytearray:
    # With cramjam: the snappy package, which is built on it, cannot limit the size of its output.
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        # A block of n bytes decompresses to about 22 n at most: a header that claims far more is wrong.
        if size > limit or size > 64 * len(block):
            raise DecompressionError(f"snappy: the header claims {size} bytes; at most {limit} are allowed")
        output = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from None
    if written != size:
        raise DecompressionError(f"snappy: {written} bytes, but the header claims {size}")
    return output


# lz4 --------------------------------------------------------------------------------------------------

_LZ4_FRAME_HEADER = bytes.fromhex("04224d18 60 40 82")
"""Magic; version 1 with independent blocks and no checksums; blocks of 64 KiB; the checksum of these two.

cramjam's own frames link their blocks, and Kafka's Java reader refuses such frames.
"""
_LZ4_BLOCK_SIZE = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_BLOCK_LENGTH = struct.Struct("<I")
_LZ4_END = _LZ4_BLOCK_LENGTH.pack(0)


def _compress_lz4(data: Buffer) -> bytes:
    parts: list[Buffer] = [_LZ4_FRAME_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK_SIZE):
        block = view[start : start + _LZ4_BLOCK_SIZE]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += (_LZ4_BLOCK_LENGTH.pack(len(packed)), packed)
        else:
            parts += (_LZ4_BLOCK_LENGTH.pack(len(block) | _LZ4_STORED), block)
    parts.append(_LZ4_END)
    return b"".join(parts)


# lz4 and zstd -----------------------------------------------------------------------------------------

_FIRST_GUESS = 8
"""The first output buffer is this many times the compressed size."""
_LEAST_OUTPUT = 16 * 1024
_GROWTH = 8


def _decompress_into(
    decompress_into: Callable[[Buffer, bytearray], Any], data: Buffer, limit: int
) -> bytearray | memoryview:
    """Decompress into buffers of growing size, up to `limit` bytes.

    Frames seldom contain their decompressed size, and it could be wrong. The library reports a full buffer
    and damaged data by the same exception, so damage is certain only after the largest buffer has failed
    too.
    """
    size = min(limit, max(_LEAST_OUTPUT, _FIRST_GUESS * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = int(decompress_into(data, output))
        except cramjam.DecompressionError as error:
            if size >= limit:
                raise DecompressionError(f"damaged, or more than {limit} bytes: {error}") from None
            size = min(limit, size * _GROWTH)
            continue
        return output if written == size else memoryview(output)[:written]
