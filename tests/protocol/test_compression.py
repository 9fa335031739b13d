"""Compression: what other libraries wrote is read, what we write they read, and a bomb stays small."""

from __future__ import annotations

import contextlib
import gzip
import random

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.compression import DecompressionError, codec_named, compress, decompress

TEXT = b"".join(b"%d carriers, %d flights; " % (n, n * n) for n in range(20_000))
NOISE = random.Random(7).randbytes(200_000)
CODECS = list(Compression)
REAL_CODECS = [codec for codec in Compression if codec is not Compression.NONE]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, NOISE, bytes(100_000)], ids=["nothing", "a byte", "text", "noise", "zeros"]
)
def test_what_is_compressed_comes_back(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(0, 400))
def test_any_bytes_come_back(codec: Compression, data: bytes, repeats: int) -> None:
    whole = data * repeats
    assert decompress(codec, memoryview(compress(codec, memoryview(whole)))) == whole


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_text_gets_smaller(codec: Compression) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 2


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_the_level_matters(codec: Compression) -> None:
    lightly, thoroughly = compress(codec, TEXT, 1), compress(codec, TEXT, 9)
    assert lightly != thoroughly
    assert decompress(codec, lightly) == decompress(codec, thoroughly) == TEXT


class TestLimit:
    """A batch that claims to be small may not fill the memory."""

    @pytest.mark.parametrize("codec", CODECS)
    def test_exactly_the_limit_is_allowed(self, codec: Compression) -> None:
        assert len(decompress(codec, compress(codec, TEXT), len(TEXT))) == len(TEXT)

    @pytest.mark.parametrize("codec", CODECS)
    def test_one_byte_more_is_refused(self, codec: Compression) -> None:
        with pytest.raises(DecompressionError):
            decompress(codec, compress(codec, TEXT), len(TEXT) - 1)

    @pytest.mark.parametrize("codec", REAL_CODECS)
    def test_a_bomb_is_refused(self, codec: Compression) -> None:
        bomb = compress(codec, bytes(64 * 1024 * 1024))
        with pytest.raises(DecompressionError):
            decompress(codec, bomb, 1024 * 1024)

    def test_gzip_members_share_one_limit(self) -> None:
        member = gzip.compress(bytes(1000))
        assert len(decompress(Compression.GZIP, member * 3, 3000)) == 3000
        with pytest.raises(DecompressionError):
            decompress(Compression.GZIP, member * 4, 3000)

    def test_a_snappy_block_that_claims_gigabytes_costs_nothing(self) -> None:
        claim = b"\xff\xff\xff\xff\x0f" + b"\x00a"
        with pytest.raises(DecompressionError, match="4294967295"):
            decompress(Compression.SNAPPY, claim, 2**40)


class TestDamage:
    @pytest.mark.parametrize("codec", REAL_CODECS)
    def test_cut_off_data_is_refused(self, codec: Compression) -> None:
        data = compress(codec, TEXT)
        for length in (len(data) - 1, len(data) // 2, 20):
            with pytest.raises(DecompressionError):
                decompress(codec, data[:length], len(TEXT))

    @given(st.sampled_from(REAL_CODECS), st.binary(max_size=200))
    def test_any_bytes_are_read_or_refused(self, codec: Compression, data: bytes) -> None:
        with contextlib.suppress(DecompressionError):
            assert len(decompress(codec, data, 10_000)) <= 10_000

    @given(st.sampled_from(REAL_CODECS), st.integers(0), st.integers(1, 255))
    def test_a_changed_byte_does_no_harm(self, codec: Compression, where: int, change: int) -> None:
        data = bytearray(compress(codec, TEXT[:5000]))
        data[where % len(data)] ^= change
        with contextlib.suppress(DecompressionError):
            assert len(decompress(codec, data, 50_000)) <= 50_000


class TestOtherWriters:
    """Framings that Kafka's clients in other languages put on the wire."""

    def test_bare_snappy(self) -> None:
        assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT

    @pytest.mark.parametrize("is_linked", [True, False])
    @pytest.mark.parametrize("block_size", [4, 5, 6, 7])
    def test_lz4_frames_of_every_block_size(self, is_linked: bool, block_size: int) -> None:
        frame = lz4.frame.compress(TEXT, block_size=block_size, block_linked=is_linked, content_checksum=True)
        assert decompress(Compression.LZ4, frame) == TEXT

    def test_zstd_with_and_without_its_content_size(self) -> None:
        for has_size in (True, False):
            frame = zstandard.ZstdCompressor(write_content_size=has_size).compress(TEXT)
            assert decompress(Compression.ZSTD, frame) == TEXT


class TestOtherReaders:
    def test_lz4_blocks_are_independent_as_java_demands(self) -> None:
        frame = compress(Compression.LZ4, TEXT)
        assert lz4.frame.decompress(frame) == TEXT
        assert not lz4.frame.get_frame_info(frame)["block_linked"]

    def test_gzip_and_zstd(self) -> None:
        assert gzip.decompress(compress(Compression.GZIP, TEXT)) == TEXT
        assert (
            zstandard.ZstdDecompressor().decompressobj().decompress(compress(Compression.ZSTD, TEXT)) == TEXT
        )

    def test_snappy_is_in_xerial_blocks(self) -> None:
        framed = compress(Compression.SNAPPY, TEXT)
        assert framed[:16] == b"\x82SNAPPY\x00" + bytes([0, 0, 0, 1, 0, 0, 0, 1])
        length = int.from_bytes(framed[16:20], "big")
        assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + length])) == TEXT[: 32 * 1024]


def test_codecs_have_kafka_s_names() -> None:
    assert [codec_named(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == CODECS
    with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd"):
        codec_named("brotli")
