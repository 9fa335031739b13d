"""scripts/consumer-perf-test.sh: measure how fast messages are read; output as in Kafka's tool."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import click

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    old_bootstrap_option,
    properties,
    run,
)
from holdfast_log.clients.tools.feedback_table import print_metrics_option, show_feedback
from holdfast_log.clients.tools.stopping import StopRequest, stop_on_signals
from holdfast_log.protocol.topic_partition import TopicPartition

_POLL_MS = 100
_MEGABYTE = 1 << 20
_TITLES = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_DETAILED_TITLES = (
    "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


@click.command("consumer-perf-test", context_settings=CONTEXT)
@old_bootstrap_option
@click.option("--topic", required=True, help="The topic to read.")
@click.option(
    "--num-records", "--messages", type=click.IntRange(1), required=True, help="Number of messages to read."
)
@click.option("--group", help="Read as a member of this group; without one, all partitions are read.")
@click.option("--from-latest", is_flag=True, help="Start at the latest message if the group has no offset.")
@click.option("--fetch-size", type=int, help="Maximum number of bytes of each partition in one fetch.")
@click.option("--socket-buffer-size", type=int, help="Size of the socket's receive buffer in bytes.")
@click.option("--timeout", "timeout_ms", type=int, default=10_000, show_default=True, help="Give up if no "
              "message arrives for this time in ms.")  # fmt: skip
@click.option("--bulk", is_flag=True, help="Read whole batches (poll_batches) instead of single records.")
@click.option("--show-detailed-stats", is_flag=True, help="Print a line every --reporting-interval.")
@click.option("--reporting-interval", type=click.IntRange(1), default=5_000, show_default=True, help="In ms.")
@click.option("--hide-header", is_flag=True, help="Do not print the header line.")
@click.option(
    "--consumer-property", metavar="KEY=VALUE", multiple=True, help="A consumer property. May be repeated."
)
@click.option(
    "--consumer.config", "config_file", metavar="FILE", help="Properties file with settings of the consumer."
)
@print_metrics_option
def consumer_perf_test(
    bootstrap: str,
    topic: str,
    num_records: int,
    group: str | None,
    from_latest: bool,
    fetch_size: int | None,
    socket_buffer_size: int | None,
    timeout_ms: int,
    bulk: bool,
    show_detailed_stats: bool,
    reporting_interval: int,
    hide_header: bool,
    consumer_property: tuple[str, ...],
    config_file: str | None,
    print_metrics: bool,
) -> int:
    """Read messages and print the throughput."""
    defaults = {
        "client.id": "perf-consumer",
        "auto.offset.reset": "latest" if from_latest else "earliest",
        "bootstrap.timeout.ms": FIRST_CONTACT_MS,
    }
    given = {
        "group.id": group,
        "max.partition.fetch.bytes": fetch_size,
        "receive.buffer.bytes": socket_buffer_size,
    }
    merged = properties(bootstrap, config_file, consumer_property, defaults)
    merged |= {key: value for key, value in given.items() if value is not None}
    if not hide_header:
        click.echo(_DETAILED_TITLES if show_detailed_stats else _TITLES)
    began = datetime.now()
    count = Count(time.monotonic())
    with stop_on_signals() as stop, Consumer(merged, rebalance_listener=count) as consumer:
        if group is None:
            consumer.partitions_for(topic)  # Fails at once if the topic does not exist.
        consumer.add_topic(topic)
        windows = Windows(reporting_interval, count) if show_detailed_stats else None
        read(consumer, count, num_records, timeout_ms, stop, windows, is_bulk=bulk)
        feedback = consumer.feedback()
    if not show_detailed_stats:
        click.echo(f"{stamp(began)}, {stamp(datetime.now())}, {count.now().since(_Mark())}")
    if print_metrics:
        show_feedback(feedback)
    if count.messages < num_records and not stop:
        click.echo(
            f"Error: {count.messages} of {num_records} messages were read, then none for {timeout_ms} ms",
            err=True,
        )
        return 1
    return 0


@dataclass(frozen=True, slots=True)
class _Mark:
    """The counts at one moment; times in s since the start."""

    elapsed_s: float = 0.0
    messages: int = 0
    size: int = 0
    joining_s: float = 0.0

    def since(self, before: _Mark) -> str:
        """What was read since another mark, as a row in the format of Kafka's tool."""
        elapsed_s = max(self.elapsed_s - before.elapsed_s, 0.001)
        joining_s = self.joining_s - before.joining_s
        fetching_s = max(elapsed_s - joining_s, 0.001)
        megabytes = (self.size - before.size) / _MEGABYTE
        messages = self.messages - before.messages
        return (
            f"{self.size / _MEGABYTE:.4f}, {megabytes / elapsed_s:.4f}, {self.messages}, "
            f"{messages / elapsed_s:.4f}, {joining_s * 1000:.0f}, {fetching_s * 1000:.0f}, "
            f"{megabytes / fetching_s:.4f}, {messages / fetching_s:.4f}"
        )


class Count(RebalanceListener):
    """Counts messages and bytes read, and the time until the group has assigned partitions."""

    def __init__(self, started_s: float) -> None:
        self.messages = 0
        self.size = 0
        self._started_s = started_s
        self._joining_since_s: float | None = started_s
        self._joining_s = 0.0

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._joining_since_s = time.monotonic()

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        if self._joining_since_s is not None:
            self._joining_s += time.monotonic() - self._joining_since_s
            self._joining_since_s = None

    def now(self) -> _Mark:
        """What has been read up to now."""
        return _Mark(time.monotonic() - self._started_s, self.messages, self.size, self._joining_s)


class Windows:
    """Prints a line for each reporting interval."""

    def __init__(self, interval_ms: int, count: Count) -> None:
        self._interval_s = interval_ms / 1000
        self._count = count
        self._last = count.now()

    def look(self) -> None:
        """Print what was read since the last line, if the reporting interval has passed."""
        mark = self._count.now()
        if mark.elapsed_s - self._last.elapsed_s >= self._interval_s:
            click.echo(f"{stamp(datetime.now())}, 0, {mark.since(self._last)}")
            self._last = mark


def read(
    consumer: Consumer,
    count: Count,
    wanted: int,
    timeout_ms: int,
    stop: StopRequest,
    windows: Windows | None,
    *,
    is_bulk: bool,
) -> None:
    """Read until the wanted number of messages was read, or none arrived for the timeout."""
    last_s = time.monotonic()
    while count.messages < wanted and not stop:
        before = count.messages
        if is_bulk:
            for batch in consumer.poll_batches(_POLL_MS):
                count.messages += len(batch)
                count.size += payload_size(batch.columns.keys) + payload_size(batch.columns.values)
        else:
            for record in consumer.poll(_POLL_MS, wanted - count.messages):
                count.messages += 1
                count.size += len(record.value or b"") + len(record.key or b"")
        now_s = time.monotonic()
        if count.messages > before:
            last_s = now_s
        elif now_s - last_s >= timeout_ms / 1000:
            return
        if windows is not None:
            windows.look()


def payload_size(column: Sequence[bytes | None]) -> int:
    """Total size in bytes of a column of keys or values."""
    return sum([len(content) for content in column if content is not None])


def stamp(moment: datetime) -> str:
    """A time in the format of Kafka's tool: 2026-01-31 23:59:59:999."""
    return f"{moment:%Y-%m-%d %H:%M:%S}:{moment.microsecond // 1000:03d}"


if __name__ == "__main__":
    run(consumer_perf_test)
