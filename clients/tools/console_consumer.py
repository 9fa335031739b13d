"""scripts/console-consumer.sh: print the messages of topics on standard output, one line each."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import click

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.fetching.deserialization import Deserializer
from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    file_properties,
    pairs,
    properties,
    run,
)
from holdfast_log.clients.tools.moments import parse_time
from holdfast_log.clients.tools.readable import Readable, readable_by
from holdfast_log.clients.tools.stopping import StopRequest, stop_on_signals
from holdfast_log.clients.tools.topic_pattern import topic_pattern
from holdfast_log.protocol.batches import TimestampType
from holdfast_log.protocol.topic_partition import TopicPartition

Formatter = Callable[[ConsumerRecord], bytes]

_POLL_MS = 500


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The parts of a message to print, and the separators between them."""

    shows_timestamp: bool = False
    shows_partition: bool = False
    shows_offset: bool = False
    shows_epoch: bool = False
    shows_headers: bool = False
    shows_key: bool = False
    shows_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    readable_header: Readable | None = None

    def __call__(self, record: ConsumerRecord) -> bytes:
        """The message as one line, with the line separator."""
        parts: list[bytes] = []
        if self.shows_timestamp:
            parts.append(_timestamp(record))
        if self.shows_partition:
            parts.append(b"Partition:%d" % record.partition)
        if self.shows_offset:
            parts.append(b"Offset:%d" % record.offset)
        if self.shows_epoch:
            parts.append(
                b"Epoch:%d" % record.leader_epoch if record.leader_epoch >= 0 else b"Epoch:NOT_PRESENT"
            )
        if self.shows_headers:
            parts.append(self._headers(record))
        if self.shows_key:
            parts.append(self._or_null(record.key))
        if self.shows_value:
            parts.append(self._or_null(record.value))
        return self.key_separator.join(parts) + self.line_separator

    def _headers(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            name.encode() + b":" + self._header(value) for name, value in record.headers
        )

    def _header(self, content: bytes | None) -> bytes:
        if content is None or self.readable_header is None:
            return self._or_null(content)
        return self.readable_header(content)

    def _or_null(self, content: bytes | None) -> bytes:
        return self.null_literal if content is None else content


def _timestamp(record: ConsumerRecord) -> bytes:
    if record.timestamp < 0:
        return b"NO_TIMESTAMP"
    is_log_time = record.timestamp_type is TimestampType.LOG_APPEND_TIME
    return (b"LogAppendTime:%d" if is_log_time else b"CreateTime:%d") % record.timestamp


def as_json(record: ConsumerRecord) -> bytes:
    """The message as one line of JSON; keys and values that are not UTF-8 become {"base64": ...}."""
    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _jsonable(record.key),
        "value": _jsonable(record.value),
        "headers": [[name, _jsonable(value)] for name, value in record.headers],
    }
    return json.dumps(shown, ensure_ascii=False).encode() + b"\n"


def _jsonable(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def as_nothing(record: ConsumerRecord) -> bytes:
    """No output."""
    return b""


_FLAGS = {
    "print.timestamp": "shows_timestamp",
    "print.partition": "shows_partition",
    "print.offset": "shows_offset",
    "print.epoch": "shows_epoch",
    "print.headers": "shows_headers",
    "print.key": "shows_key",
    "print.value": "shows_value",
}
_TEXTS = {
    "key.separator": "key_separator",
    "line.separator": "line_separator",
    "headers.separator": "headers_separator",
    "null.literal": "null_literal",
}


_KEY, _VALUE, _HEADERS = "key.deserializer", "value.deserializer", "headers.deserializer"
"""Properties of Kafka's default formatter, by which keys, values and headers become text."""


def line_format(given: Mapping[str, str]) -> OutputFormat:
    """The format described by properties of Kafka's default formatter. Raises click.UsageError."""
    values: dict[str, object] = {}
    for key, text in given.items():
        if key in _FLAGS:
            values[_FLAGS[key]] = text.strip().lower() == "true"
        elif key in _TEXTS:
            values[_TEXTS[key]] = text.encode()
        elif key == _HEADERS:
            values["readable_header"] = readable_by(text, f"--property {key}")
        elif key not in (_KEY, _VALUE):
            known = ", ".join((*_FLAGS, *_TEXTS, _KEY, _VALUE, _HEADERS))
            raise click.UsageError(f"--property {key}: the properties are {known}")
    return OutputFormat(**values)  # type: ignore[arg-type]


def deserializer(name: str | None, option: str) -> Deserializer | None:
    """What makes text of a key or value; None for bytes as they are. Raises click.UsageError."""
    if name is None:
        return None
    readable = readable_by(name, option)
    return lambda topic, content: readable(content)


def formatter(name: str, given: Mapping[str, str]) -> Formatter:
    """The formatter with this name, or with Kafka's class name for it. Raises click.UsageError."""
    match name.rpartition(".")[2]:
        case "default" | "DefaultMessageFormatter":
            return line_format(given)
        case "json":
            return as_json
        case "noop" | "NoOpMessageFormatter":
            return as_nothing
    raise click.UsageError(f"--formatter {name}: the formatters are default, json and noop")


@click.command(context_settings=CONTEXT)
@bootstrap_option
@click.option("--topic", help="The topic to read.")
@click.option(
    "--include", "--whitelist", "include", metavar="REGEX",
    help="Instead of --topic: read all topics whose name matches. --whitelist is its old name.",
)  # fmt: skip
@click.option("--group", help="Consumer group to join; reading continues at its committed offsets.")
@click.option("--partition", type=click.IntRange(0), help="Read only this partition.")
@click.option(
    "--offset", metavar="OFFSET", help="With --partition: first offset to read: earliest, latest or a number."
)
@click.option("--from-beginning", is_flag=True, help="Start at the earliest message instead of the latest.")
@click.option(
    "--from-time",
    metavar="TIME",
    help="Start at the first message of each partition at or after this time: YYYY-MM-DDTHH:mm:SS.sss, in "
    "UTC unless a zone follows, or ms since the epoch.",
)
@click.option(
    "--max-messages", type=click.IntRange(0), help="Maximum number of messages to read before exiting."
)
@click.option("--timeout-ms", type=int, help="Exit if no message arrives for this time in ms.")
@click.option(
    "--formatter",
    "formatter_name",
    default="default",
    help="Formatter of the messages: default, json, or noop (prints nothing).",
)
@click.option(
    "--property",
    "formatter_properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="What to print: print.timestamp, print.partition, print.offset, print.epoch, print.headers, "
    "print.key, print.value, key.separator, line.separator, headers.separator, null.literal; and how: "
    "key.deserializer, value.deserializer, headers.deserializer.",
)
@click.option(
    "--formatter-config", metavar="FILE", help="Properties file with what to print, as for --property."
)
@click.option(
    "--key-deserializer",
    metavar="NAME",
    help="How keys become text: String (the default), Short, Integer, Long, Float, Double, Boolean, UUID, or "
    "Kafka's class name.",
)
@click.option("--value-deserializer", metavar="NAME", help="How values become text, as --key-deserializer.")
@click.option(
    "--skip-message-on-error",
    is_flag=True,
    help="Leave out messages that their deserializer cannot read, instead of ending with an error.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    help="read_committed: leave out messages of transactions that were aborted, and wait before those of "
    "open ones. [default: read_uncommitted]",
)
@click.option(
    "--consumer-property", metavar="KEY=VALUE", multiple=True, help="A consumer property. May be repeated."
)
@click.option(
    "--consumer.config", "config_file", metavar="FILE", help="Properties file with settings of the consumer."
)
def console_consumer(
    bootstrap: str,
    topic: str | None,
    include: str | None,
    group: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    from_time: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    formatter_name: str,
    formatter_properties: tuple[str, ...],
    formatter_config: str | None,
    key_deserializer: str | None,
    value_deserializer: str | None,
    skip_message_on_error: bool,
    isolation_level: str | None,
    consumer_property: tuple[str, ...],
    config_file: str | None,
) -> None:
    """Print the messages of a topic as they arrive, until Ctrl-C.

    With --group, offsets of printed messages are committed at exit, and the next run continues after them.
    """
    if (topic is None) == (include is None):
        raise click.UsageError("either --topic or --include is needed")
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    if from_time is not None and (offset is not None or from_beginning):
        raise click.UsageError("--from-time excludes --offset and --from-beginning")
    since_ms = None if from_time is None else parse_time(from_time, "--from-time")
    described = {**file_properties(formatter_config), **pairs(formatter_properties)}
    show = formatter(formatter_name, described)
    key = deserializer(key_deserializer or described.get(_KEY), "--key-deserializer")
    value = deserializer(value_deserializer or described.get(_VALUE), "--value-deserializer")
    defaults = {
        "client.id": "console-consumer",
        "default.api.timeout.ms": 15_000,
        "bootstrap.timeout.ms": FIRST_CONTACT_MS,
    }
    merged = properties(bootstrap, config_file, consumer_property, defaults)
    if from_beginning:
        merged["auto.offset.reset"] = "earliest"
    if group is not None:
        merged["group.id"] = group
    if isolation_level is not None:
        merged["isolation.level"] = isolation_level
    if skip_message_on_error:
        merged["deserialization.errors"] = "skip"
    if merged.get("group.id") and partition is not None:
        raise click.UsageError("--partition and --group exclude each other: the group assigns partitions")
    if merged.get("group.id") and since_ms is not None:
        raise click.UsageError(
            "--from-time and --group exclude each other: use consumer-groups.sh --reset-offsets "
            "--to-datetime to set a group's offsets by time"
        )
    count = 0
    with (
        stop_on_signals() as stop,
        Consumer(merged, key_deserializer=key, value_deserializer=value) as consumer,
    ):
        stop.interrupts = True  # No message has been read yet, so none can be lost.
        for name in [topic] if topic is not None else _matching(consumer, include or ""):
            _add(consumer, name, partition, offset)
        if since_ms is not None:
            _begin_at(consumer, since_ms)
        stop.interrupts = False
        for record in _messages(consumer, max_messages, timeout_ms, stop):
            sys.stdout.buffer.write(show(record))
            count += 1
    click.echo(f"Processed a total of {count} messages", err=True)


def _matching(consumer: Consumer, pattern: str) -> list[str]:
    wanted = topic_pattern(pattern, "--include")
    return [name for name in consumer.topics() if wanted.fullmatch(name)]


def _add(consumer: Consumer, topic: str, partition: int | None, offset: str | None) -> None:
    """Consume a topic, or one partition starting at an offset. Raises UnknownTopicOrPartitionError."""
    partitions = consumer.partitions_for(topic)
    if consumer.settings["group.id"] is not None:
        consumer.add_topic(topic)
        return
    if partition is None:
        for number in partitions:
            consumer.add_topic(topic, number)
        return
    if partition not in partitions:
        raise click.UsageError(
            f"--partition {partition}: {topic} has the partitions {partitions[0]} to {partitions[-1]}"
        )
    consumer.add_topic(topic, partition)
    if offset == "earliest":
        consumer.seek_to_beginning(TopicPartition(topic, partition))
    elif offset == "latest":
        consumer.seek_to_end(TopicPartition(topic, partition))
    elif offset is not None:
        if not offset.isascii() or not offset.isdigit():
            raise click.UsageError(f"--offset {offset}: give earliest, latest or a number")
        consumer.seek(TopicPartition(topic, partition), int(offset))


def _begin_at(consumer: Consumer, since_ms: int) -> None:
    """Seek to the first message at or after `since_ms` (ms since the epoch) in all consumed partitions."""
    partitions = consumer.assignment()
    # Ends are looked up first: in a partition without such a message, reading starts at this end, and
    # messages written during the second look-up are not skipped.
    ends = consumer.end_offsets(partitions)
    found = consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
    for partition, first in found.items():
        consumer.seek(partition, ends[partition] if first is None else first.offset)


def _messages(
    consumer: Consumer, max_messages: int | None, timeout_ms: int | None, stop: StopRequest
) -> Iterator[ConsumerRecord]:
    """Yield messages until `max_messages` were read, none arrived for `timeout_ms`, or a stop is requested.

    Never polls more records than may still be printed, because every polled record counts as consumed.
    """
    left = max_messages
    idle_ms = 0
    while not stop and (left is None or left > 0):
        wait_ms = _POLL_MS if timeout_ms is None else min(_POLL_MS, max(0, timeout_ms - idle_ms))
        records = consumer.poll(wait_ms, left)
        idle_ms = 0 if records else idle_ms + wait_ms
        if not records and timeout_ms is not None and idle_ms >= timeout_ms:
            return
        yield from records
        sys.stdout.buffer.flush()
        if left is not None:
            left -= len(records)


if __name__ == "__main__":
    run(console_consumer)
