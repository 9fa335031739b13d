"""Measures log compaction: python -m benchmarks.compaction --help.

Writes a log of records with random keys, then compacts it in this process: no broker, and nobody reads or
writes beside it. One thread does the work, so MB/s of processor time are MB/s per core. The log's own bytes
count, not what is written. The peak of memory contains the interpreter and the log. Ends with one line of
JSON.
"""

from __future__ import annotations

import json
import random
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from twisted.internet.defer import Deferred, ensureDeferred, maybeDeferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.cleaning.cleaning_pass import CleaningPass, PassSurroundings
from holdfast_log.broker.cleaning.plan import plan_of
from holdfast_log.broker.cleaning.settings import CleanerSettings
from holdfast_log.broker.decompression_budget import DecompressionBudget
from holdfast_log.broker.log.disk import OsDisk
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.loading import LoadRequest
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.preparation import prepare_append
from holdfast_log.broker.log.recovery import create_log
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.protocol.compression import codec_named
from holdfast_log.protocol.records import BatchBuilder
from holdfast_log.protocol.topic_partition import TopicPartition

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Compacted:
    """What the compaction of one log took. `cleaner` names the program; sizes are in bytes."""

    cleaner: str
    codec: str
    bytes_before: int
    bytes_after: int
    passes: int
    seconds: float
    cpu_seconds: float
    memory_before_bytes: int
    memory_peak_bytes: int

    @property
    def mb_per_second(self) -> float:
        return self.bytes_before / self.seconds / MB

    @property
    def mb_per_cpu_second(self) -> float:
        return self.bytes_before / self.cpu_seconds / MB


class _HereWorkers:
    """Does each job at once, in this thread."""

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Deferred[Any]:
        return maybeDeferred(function, *args, **kwargs)


def write_log(
    directory: Path, size: int, keys: int, record_bytes: int, batch_records: int, codec: str
) -> Log:
    """A durable log of about `size` bytes, uncompressed, in the directory."""
    now_ms = int(time.time() * 1000)
    settings = LogSettings(cleanup_policy=("compact",), max_message_bytes=1 << 30)
    request = LoadRequest(TopicPartition("compacted", 0), str(directory / "compacted-0"), settings, now_ms)
    log = create_log(OsDisk(), request)
    chance = random.Random(1)
    noise = chance.randbytes(1 << 20)
    for _ in range(size // (record_bytes * batch_records)):
        builder = BatchBuilder(codec_named(codec))
        for _ in range(batch_records):
            key = b"key-%012d" % chance.randrange(keys)
            start = chance.randrange(len(noise) - record_bytes)
            builder.append(now_ms, key, noise[start : start + record_bytes - len(key)])
        prepared = prepare_append(log, memoryview(builder.build()), now_ms=now_ms)
        log.append_prepared(prepared, 0, now_ms=now_ms)
    log.roll(now_ms)
    flush_at_once(log)
    return log


def compact(log: Log, codec: str, settings: CleanerSettings) -> Compacted:
    """Compact the log by as many passes as it takes."""
    before, memory_before = log.size_bytes, _peak_bytes()
    began_s, cpu_began_s = time.perf_counter(), time.process_time()
    passes = 0
    while (plan := plan_of(log, log.log_end_offset, int(time.time() * 1000))) is not None:
        around = PassSurroundings(
            OsDisk(), _HereWorkers(), DecompressionBudget(_HereWorkers()),
            lambda: int(time.time() * 1000), settings, lambda _: succeed(None), lambda: False,
        )  # fmt: skip
        failures: list[Failure] = []
        ensureDeferred(CleaningPass(plan, around).run()).addErrback(failures.append)
        for failure in failures:
            failure.raiseException()
        passes += 1
    return Compacted(
        "holdfast", codec, before, log.size_bytes, passes,
        time.perf_counter() - began_s, time.process_time() - cpu_began_s, memory_before, _peak_bytes(),
    )  # fmt: skip


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@click.command()
@click.option("--megabytes", default=2000, show_default=True, type=click.IntRange(1), help="Size of the log.")
@click.option("--keys", default=1_000_000, show_default=True, type=click.IntRange(1), help="Different keys.")
@click.option("--record-bytes", default=1000, show_default=True, type=click.IntRange(20))
@click.option("--batch-records", default=16, show_default=True, type=click.IntRange(1))
@click.option("--codec", default="none", show_default=True, help="none, gzip, snappy, lz4 or zstd.")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the log is written and removed again; by default the system's temporary directory.",
)
def main(
    megabytes: int, keys: int, record_bytes: int, batch_records: int, codec: str, directory: Path | None
) -> None:
    """Compact a log of records with random keys, and print what it took."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        log = write_log(Path(place), megabytes * MB, keys, record_bytes, batch_records, codec)
        click.echo(f"a log of {log.size_bytes / MB:.0f} MB in {len(log.segments)} segments, codec {codec}")
        rows = [compact(log, codec, CleanerSettings())]
        log.release()
    click.echo(f"{'cleaner':10} {'MB/s':>8} {'MB/s/core':>10} {'passes':>7} {'left':>6} {'memory':>10}")
    for row in rows:
        grown = (row.memory_peak_bytes - row.memory_before_bytes) / MB
        click.echo(
            f"{row.cleaner:10} {row.mb_per_second:8.0f} {row.mb_per_cpu_second:10.0f} {row.passes:7} "
            f"{row.bytes_after / row.bytes_before:6.0%} {grown:+7.0f} MB"
        )
    click.echo(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
