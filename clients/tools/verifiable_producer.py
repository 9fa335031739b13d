"""scripts/verifiable-producer.sh: a producer that reports each message as JSON."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import click

from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.clients.tools.command import CONTEXT, old_bootstrap_option, properties, run
from holdfast_log.clients.tools.json_events import tell
from holdfast_log.clients.tools.pace import UNLIMITED, Pace
from holdfast_log.clients.tools.stopping import stop_on_signals

_NAP_MS = 100


@click.command("verifiable-producer", context_settings=CONTEXT)
@old_bootstrap_option
@click.option("--topic", required=True, help="The topic to write to.")
@click.option(
    "--max-messages",
    type=int,
    default=UNLIMITED,
    show_default=True,
    help="Maximum number of messages; -1 for no limit.",
)
@click.option(
    "--throughput",
    type=float,
    default=UNLIMITED,
    show_default=True,
    help="Maximum number of messages per second; -1 for no limit.",
)
@click.option("--acks", default="-1", show_default=True, help="0, 1 or -1 (all).")
@click.option(
    "--message-create-time",
    type=int,
    help="Timestamp of the first message, in ms since the epoch; it advances with the clock.",
)
@click.option("--value-prefix", type=int, help="Write values as PREFIX.NUMBER instead of NUMBER.")
@click.option(
    "--repeating-keys",
    type=click.IntRange(1),
    help="Number of different keys; keys count from 0 and then start again.",
)
@click.option(
    "--producer-property", metavar="KEY=VALUE", multiple=True, help="A producer property. May be repeated."
)
@click.option(
    "--producer.config", "config_file", metavar="FILE", help="Properties file with settings of the producer."
)
def verifiable_producer(
    bootstrap: str,
    topic: str,
    max_messages: int,
    throughput: float,
    acks: str,
    message_create_time: int | None,
    value_prefix: int | None,
    repeating_keys: int | None,
    producer_property: tuple[str, ...],
    config_file: str | None,
) -> int:
    """Write increasing numbers to a topic and print the result of each as one line of JSON.

    Ctrl-C stops the program: it waits for messages already sent, and prints totals on the last line.
    """
    defaults = {
        "client.id": "verifiable-producer",
        "acks": acks,
        "max.block.ms": 15_000,
    }
    account = DeliveryAccount()
    keys: Iterator[str | None] = itertools.repeat(None)
    if repeating_keys is not None:
        keys = itertools.cycle([str(number) for number in range(repeating_keys)])
    with (
        stop_on_signals() as stop,
        Producer(properties(bootstrap, config_file, producer_property, defaults)) as producer,
    ):
        tell("startup_complete")
        started_ms = time.monotonic() * 1000
        pace = Pace(throughput, started_ms)
        while not stop and account.sent != max_messages:
            wait_ms = pace.wait_ms(account.sent, time.monotonic() * 1000)
            if wait_ms:
                time.sleep(min(wait_ms, _NAP_MS) / 1000)
                continue
            value = str(account.sent) if value_prefix is None else f"{value_prefix}.{account.sent}"
            timestamp = None
            if message_create_time is not None:
                timestamp = message_create_time + int(time.monotonic() * 1000 - started_ms)
            account.send(producer, Message(topic, next(keys), value, timestamp=timestamp))
        producer.flush()
    tell("shutdown_complete")
    elapsed_s = max(time.monotonic() - started_ms / 1000, 0.001)
    tell(
        "tool_data",
        sent=account.sent,
        acked=account.acked,
        target_throughput=throughput,
        avg_throughput=account.acked / elapsed_s,
    )
    return 0 if account.acked == account.sent else 1


class DeliveryAccount:
    """Counts messages sent and acknowledged."""

    def __init__(self) -> None:
        self.sent = 0
        self.acked = 0

    def send(self, producer: Producer, message: Message) -> None:
        """Send a message, and report it once its result is known."""
        self.sent += 1
        producer.send(message).on_completion(lambda response: self._told(message, response))

    def _told(self, message: Message, response: SendResponse) -> None:
        what = {"key": message.key, "value": message.value, "topic": message.topic}
        if response.error is not None:
            tell(
                "producer_send_error",
                exception=type(response.error).__name__,
                message=str(response.error),
                **what,
            )
            return
        self.acked += 1
        tell("producer_send_success", **what, partition=response.partition, offset=response.offset)


if __name__ == "__main__":
    run(verifiable_producer)
