"""scripts/producer-perf-test.sh: measure how fast messages are written; output as in Kafka's tool."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.clients.tools.command import CONTEXT, pairs, properties, run
from holdfast_log.clients.tools.feedback_table import print_metrics_option, show_feedback
from holdfast_log.clients.tools.pace import Latencies, Pace
from holdfast_log.clients.tools.stopping import stop_on_signals

if TYPE_CHECKING:
    from holdfast_log.clients.transactions.transaction import ProducerTransaction

_REPORT_MS = 5_000
_TRANSACTION_MS = 3_000
_RANDOM_PAYLOADS = 64
_UPPER_CASE = range(ord("A"), ord("Z") + 1)


@click.command("producer-perf-test", context_settings=CONTEXT)
@click.option("--topic", required=True, help="The topic to write to.")
@click.option("--num-records", type=click.IntRange(1), required=True, help="Number of messages to write.")
@click.option("--record-size", type=click.IntRange(0), help="Bytes of each value, random capital letters.")
@click.option("--payload-file", metavar="FILE", help="File with values, which are chosen at random.")
@click.option(
    "--payload-delimiter", default="\\n", show_default=True, help="Delimiter of the values in --payload-file."
)
@click.option("--payload-monotonic", is_flag=True, help="Write increasing numbers from 0 as values.")
@click.option(
    "--throughput", type=float, required=True, help="Maximum number of messages per second; -1 for no limit."
)
@click.option("--bootstrap-server", "bootstrap", metavar="HOST:PORT", help="A broker to connect to.")
@click.option(
    "--producer-props",
    metavar="KEY=VALUE",
    multiple=True,
    help="Producer properties, separated by spaces.",
)
@click.option(
    "--producer.config", "config_file", metavar="FILE", help="Properties file with settings of the producer."
)
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(1),
    metavar="MS",
    help="Write in transactions, and commit each after this time.",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    help=f"The id of these transactions. Alone, it commits each after {_TRANSACTION_MS} ms. "
    "[default: one of its own for each run]",
)
@print_metrics_option
@click.argument("more_props", metavar="[KEY=VALUE]...", nargs=-1)
def producer_perf_test(
    topic: str,
    num_records: int,
    record_size: int | None,
    payload_file: str | None,
    payload_delimiter: str,
    payload_monotonic: bool,
    throughput: float,
    bootstrap: str | None,
    producer_props: tuple[str, ...],
    config_file: str | None,
    transaction_duration_ms: int | None,
    transactional_id: str | None,
    print_metrics: bool,
    more_props: tuple[str, ...],
) -> int:
    """Write messages and print the throughput and the latency of acknowledgements."""
    if [record_size is not None, payload_file is not None, payload_monotonic].count(True) != 1:
        raise click.UsageError("one of --record-size, --payload-file, --payload-monotonic is needed")
    given = (*producer_props, *more_props)
    address = bootstrap or pairs(given).get("bootstrap.servers")
    if address is None:
        raise click.UsageError("--bootstrap-server, or bootstrap.servers among --producer-props, is needed")
    if payload_monotonic:
        values: Iterator[bytes] = (b"%d" % number for number in itertools.count())
    elif payload_file is not None:
        values = endlessly(read_payloads(payload_file, payload_delimiter))
    else:
        values = endlessly(random_payloads(record_size or 0))
    merged = properties(address, config_file, given, {"client.id": "perf-producer"})
    if transaction_duration_ms is not None or transactional_id is not None:
        merged["transactional.id"] = transactional_id or f"producer-perf-test-{uuid4()}"
        transaction_duration_ms = transaction_duration_ms or _TRANSACTION_MS
    with stop_on_signals() as stop, Producer(merged) as producer:
        transactions = TimedTransactions(producer, transaction_duration_ms)
        started_ms = time.monotonic() * 1000
        account = ThroughputAccount(started_ms)
        pace = Pace(throughput, started_ms)
        for number, value in enumerate(itertools.islice(values, num_records)):
            transactions.before(time.monotonic() * 1000)
            account.send(producer, topic, value)
            wait_ms = pace.wait_ms(number + 1, time.monotonic() * 1000)
            if wait_ms >= 1:
                time.sleep(wait_ms / 1000)
            if stop:
                break
        producer.flush()
        transactions.commit()
        feedback = producer.feedback()
    status = account.finish()
    if print_metrics:
        show_feedback(feedback)
    return status


class TimedTransactions:
    """Transactions that last `duration_ms` each, one after the other; none if that is None."""

    def __init__(self, producer: Producer, duration_ms: int | None) -> None:
        self._producer = producer
        self._duration_ms = duration_ms
        self._open: ProducerTransaction | None = None
        self._ends_ms = 0.0
        if duration_ms is not None:
            producer.init_transactions()

    def before(self, now_ms: float) -> None:
        """A message is about to be sent: commit what has lasted long enough, and begin the next."""
        if self._duration_ms is None or (self._open is not None and now_ms < self._ends_ms):
            return
        self.commit()
        self._open = self._producer.transaction()
        self._ends_ms = now_ms + self._duration_ms

    def commit(self) -> None:
        """Commit what is open."""
        if self._open is not None:
            self._open.commit()
            self._open = None


def random_payloads(size: int) -> list[bytes]:
    """Values of `size` random capital letters, which compress little."""
    rng = random.Random(0)
    return [bytes(rng.choices(_UPPER_CASE, k=size)) for _ in range(_RANDOM_PAYLOADS)]


def read_payloads(path: str, delimiter: str) -> list[bytes]:
    """The values in a file. Raises click.UsageError."""
    separator = delimiter.encode().decode("unicode_escape").encode()
    if not separator:
        raise click.UsageError("--payload-delimiter must not be empty")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise click.UsageError(f"--payload-file {path}: {error.strerror}") from None
    found = [value for value in content.split(separator) if value]
    if not found:
        raise click.UsageError(f"--payload-file {path} is empty")
    return found


def endlessly(values: list[bytes]) -> Iterator[bytes]:
    """Yield randomly chosen values without end."""
    rng = random.Random(0)
    while True:
        yield from rng.choices(values, k=1000)


class ThroughputAccount:
    """Counts acknowledged messages on the producer's thread, and prints a line every five seconds."""

    def __init__(self, started_ms: float) -> None:
        self._lock = threading.Lock()
        self._started_ms = started_ms
        self._window_ms = started_ms
        self._window = Latencies()
        self._window_bytes = 0
        self._all = Latencies()
        self._bytes = 0
        self._errors: dict[str, int] = {}

    def send(self, producer: Producer, topic: str, value: bytes) -> None:
        """Send a value, and count it when it is acknowledged."""
        sent_ms = time.monotonic() * 1000
        size = len(value)
        producer.send(Message(topic, value=value)).on_completion(
            lambda response: self._done(response, sent_ms, size)
        )

    def _done(self, response: SendResponse, sent_ms: float, size: int) -> None:
        now_ms = time.monotonic() * 1000
        with self._lock:
            if response.error is not None:
                text = f"{type(response.error).__name__}: {response.error}"
                self._errors[text] = self._errors.get(text, 0) + 1
                return
            for latencies in (self._window, self._all):
                latencies.add(now_ms - sent_ms)
            self._window_bytes += size
            self._bytes += size
            if now_ms - self._window_ms >= _REPORT_MS:
                click.echo(f"{rates(self._window, self._window_bytes, now_ms - self._window_ms)}.")
                self._window, self._window_bytes, self._window_ms = Latencies(), 0, now_ms

    def finish(self) -> int:
        """Print the totals, and return the exit status."""
        elapsed_ms = time.monotonic() * 1000 - self._started_ms
        shares = self._all.percentiles(0.5, 0.95, 0.99, 0.999)
        named = zip(shares, ("50th", "95th", "99th", "99.9th"), strict=True)
        shown = ", ".join(f"{latency_ms:.0f} ms {name}" for latency_ms, name in named)
        click.echo(f"{rates(self._all, self._bytes, elapsed_ms)}, {shown}.")
        for text, count in self._errors.items():
            click.echo(f"Error: {count} messages were not written: {text}", err=True)
        return 1 if self._errors else 0


def rates(latencies: Latencies, size: int, elapsed_ms: float) -> str:
    """Throughput and latency in the format of Kafka's tool, without a line end. `size` is in bytes."""
    elapsed_s = max(elapsed_ms, 1.0) / 1000
    return (
        f"{latencies.count} records sent, {latencies.count / elapsed_s:.1f} records/sec "
        f"({size / elapsed_s / (1 << 20):.2f} MB/sec), {latencies.mean_ms:.2f} ms avg latency, "
        f"{latencies.max_ms:.2f} ms max latency"
    )


if __name__ == "__main__":
    run(producer_perf_test)
