"""What all jobs together may decompress."""

from __future__ import annotations

import tracemalloc

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.decompression_budget import DecompressionBudget, DecompressionLimits
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.log.validation import ExcessiveRecordsError, examine
from holdfast_log.protocol.batches import HEADER_SIZE, Compression, read_header, write_header
from holdfast_log.protocol.compression import compress
from tests.models.batches import START_MS
from tests.models.workers import ImmediateWorkers


def fail() -> None:
    raise ValueError("no batch")


def test_jobs_wait_until_there_is_room_and_keep_their_order() -> None:
    workers = ImmediateWorkers(is_held=True)
    budget = DecompressionBudget(workers, DecompressionLimits(400))
    assert budget.batch_bytes_max == 100
    done: list[str] = []

    def ask(name: str, job_bytes: int) -> None:
        budget.share(job_bytes).run(lambda: name).addCallback(done.append)

    for name, job_bytes in (("a", 300), ("b", 100), ("c", 200), ("d", 10), ("larger than all", 1000)):
        ask(name, job_bytes)

    assert (len(workers.jobs), budget.used_bytes) == (2, 400)
    workers.work()
    assert (done, len(workers.jobs), budget.used_bytes) == (["a"], 3, 310)
    workers.release()
    assert sorted(done) == ["a", "b", "c", "d", "larger than all"]
    assert budget.used_bytes == 0


def test_a_job_that_fails_gives_its_room_back() -> None:
    budget = DecompressionBudget(ImmediateWorkers(), DecompressionLimits(400))
    failures: list[object] = []

    failed: Deferred[None] = budget.share(400).run(fail)
    failed.addErrback(failures.append)

    assert len(failures) == 1 and budget.used_bytes == 0


def bomb_of(payload: bytes, codec: Compression) -> memoryview:
    found = bytearray(HEADER_SIZE) + payload
    write_header(
        found, attributes=codec, record_count=1, last_offset_delta=0, base_timestamp=START_MS,
        max_timestamp=START_MS,
    )  # fmt: skip
    return memoryview(found)


BOMB_BYTES = 200 << 20
LIMIT_BYTES = 8 << 20


def raw_snappy(size: int) -> bytes:
    import cramjam

    return bytes(cramjam.snappy.compress_raw(bytes(size)))


BOMBS = {
    **{codec.name: codec for codec in Compression if codec},
    "raw snappy": Compression.SNAPPY,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_a_small_multiple_of_its_limit(name: str) -> None:
    codec = BOMBS[name]
    payload = raw_snappy(BOMB_BYTES) if name == "raw snappy" else compress(codec, bytes(BOMB_BYTES))
    records = bomb_of(payload, codec)
    header = read_header(records)
    settings = LogSettings.of({"max.message.bytes": 2**31 - 1})

    tracemalloc.start()
    try:
        with pytest.raises(ExcessiveRecordsError, match="cannot be decompressed"):
            examine(records, header, settings, LIMIT_BYTES)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 3 * LIMIT_BYTES
