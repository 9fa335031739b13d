"""scripts/console-producer.sh: send each line of standard input or of a file as a message."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO

import click

from holdfast_log.clients.errors import ClosedError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.clients.tools.command import (
    CONTEXT,
    explained,
    file_properties,
    old_bootstrap_option,
    pairs,
    properties,
    run,
)
from holdfast_log.clients.tools.progress import progress
from holdfast_log.clients.tools.stopping import StopRequest, stop_on_signals

_ERRORS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class InputFormat:
    """How a line is split into headers, key and value."""

    has_key: bool = False
    key_separator: bytes = b"\t"
    has_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    ignore_error: bool = False

    def message(self, topic: str, line: bytes) -> Message:
        """The message in a line. Raises ValueError if the line lacks a separator."""
        headers: tuple[tuple[str, bytes | None], ...] = ()
        key: bytes | None = None
        if self.has_headers:
            before, found, after = line.partition(self.headers_delimiter)
            if found:
                headers, line = self._headers(before), after
            elif not self.ignore_error:
                raise ValueError(f"no headers delimiter {self.headers_delimiter!r}")
        if self.has_key:
            before, found, after = line.partition(self.key_separator)
            if found:
                key, line = before, after
            elif not self.ignore_error:
                raise ValueError(f"no key separator {self.key_separator!r}")
        return Message(topic, self._or_null(key), self._or_null(line), headers=headers)

    def _headers(self, text: bytes) -> tuple[tuple[str, bytes | None], ...]:
        if not text or text == self.null_marker:
            return ()
        headers: list[tuple[str, bytes | None]] = []
        for item in text.split(self.headers_separator):
            name, found, value = item.partition(self.headers_key_separator)
            if not found:
                raise ValueError(f"no separator {self.headers_key_separator!r} in the header {item!r}")
            headers.append((name.decode(), self._or_null(value)))
        return tuple(headers)

    def _or_null(self, content: bytes | None) -> bytes | None:
        return None if content == self.null_marker else content


_LINE_READER = "LineMessageReader"
_SETTINGS = (
    ("max_partition_memory_bytes", "batch.size"),
    ("max_memory_bytes", "buffer.memory"),
    ("max_block_ms", "max.block.ms"),
    ("message_send_max_retries", "retries"),
    ("retry_backoff_ms", "retry.backoff.ms"),
    ("request_timeout_ms", "request.timeout.ms"),
    ("metadata_expiry_ms", "metadata.max.age.ms"),
    ("socket_buffer_size", "send.buffer.bytes"),
)
"""Options that stand for a setting of the producer, as in Kafka's tool; without them the producer's defaults
apply, not those of Kafka's tool."""
_FORMAT_PROPERTIES = {
    "parse.key": "has_key",
    "key.separator": "key_separator",
    "parse.headers": "has_headers",
    "headers.delimiter": "headers_delimiter",
    "headers.separator": "headers_separator",
    "headers.key.separator": "headers_key_separator",
    "null.marker": "null_marker",
    "ignore.error": "ignore_error",
}


def line_format(given: Mapping[str, str]) -> InputFormat:
    """The format described by properties of Kafka's line reader. Raises click.UsageError."""
    values: dict[str, object] = {}
    for key, text in given.items():
        name = _FORMAT_PROPERTIES.get(key)
        if name is None:
            raise click.UsageError(f"--property {key}: the properties are {', '.join(_FORMAT_PROPERTIES)}")
        if name in ("has_key", "has_headers", "ignore_error"):
            values[name] = text.strip().lower() == "true"
        elif not text:
            raise click.UsageError(f"--property {key} must not be empty")
        else:
            values[name] = text.encode()
    return InputFormat(**values)  # type: ignore[arg-type]


@click.command(context_settings=CONTEXT)
@old_bootstrap_option
@click.option("--topic", required=True, help="The topic to write to.")
@click.option(
    "--file",
    "path",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    help="File to read lines from instead of standard input. A terminal shows a progress bar.",
)
@click.option(
    "--property",
    "reader_properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="How lines are read: parse.key, key.separator (tab), parse.headers, headers.delimiter (tab), "
    "headers.separator (comma), headers.key.separator (colon), null.marker, ignore.error.",
)
@click.option(
    "--reader-config", metavar="FILE", help="Properties file with line reader properties, as for --property."
)
@click.option(
    "--compression-codec", metavar="CODEC", is_flag=False, flag_value="gzip",
    help="Compression codec: none, gzip, snappy, lz4 or zstd. Without a value, gzip.",
)  # fmt: skip
@click.option(
    "--sync",
    "is_sync",
    is_flag=True,
    help="Send synchronously: wait for each message before reading the next.",
)
@click.option(
    "--request-required-acks", metavar="ACKS", help="Acknowledgements that a request needs: 0, 1 or all."
)
@click.option("--batch-size", type=int, help="Maximum size of a batch in bytes.")
@click.option(
    "--max-partition-memory-bytes",
    type=int,
    metavar="BYTES",
    help="The same as --batch-size, which precedes it.",
)
@click.option(
    "--max-memory-bytes", type=int, metavar="BYTES", help="Maximum bytes of messages that wait to be sent."
)
@click.option(
    "--max-block-ms",
    type=int,
    metavar="MS",
    help="Maximum time that a message waits for room, or for a broker.",
)
@click.option(
    "--message-send-max-retries", type=int, metavar="N", help="How often a failed request is repeated."
)
@click.option("--retry-backoff-ms", type=int, metavar="MS", help="Time before a failed request is repeated.")
@click.option(
    "--request-timeout-ms", type=int, metavar="MS", help="Maximum time for the answer to a request."
)
@click.option(
    "--metadata-expiry-ms", type=int, metavar="MS", help="Age at which metadata is asked for again."
)
@click.option("--socket-buffer-size", type=int, metavar="BYTES", help="Size of the socket's send buffer.")
@click.option(
    "--line-reader",
    metavar="NAME",
    help="Only Kafka's LineMessageReader, which is the default.",
)
@click.option(
    "--timeout", "linger_ms", type=int, help="Maximum time in ms that a batch waits for more messages."
)
@click.option(
    "--producer-property", metavar="KEY=VALUE", multiple=True, help="A producer property. May be repeated."
)
@click.option(
    "--producer.config", "config_file", metavar="FILE", help="Properties file with settings of the producer."
)
def console_producer(
    bootstrap: str,
    topic: str,
    path: str | None,
    reader_properties: tuple[str, ...],
    reader_config: str | None,
    compression_codec: str | None,
    is_sync: bool,
    request_required_acks: str | None,
    linger_ms: int | None,
    line_reader: str | None,
    producer_property: tuple[str, ...],
    config_file: str | None,
    **given: int | None,
) -> None:
    """Write each line of standard input, or of a file, to a topic.

    Ctrl-D or Ctrl-C ends the input; lines already read are still sent. A second Ctrl-C exits without waiting.
    """
    if line_reader is not None and line_reader.rpartition(".")[2] != _LINE_READER:
        raise click.UsageError(f"--line-reader {line_reader}: {_LINE_READER} is the only one")
    how = line_format({**file_properties(reader_config), **pairs(reader_properties)})
    settings: dict[str, object] = {
        "compression.type": compression_codec,
        "acks": request_required_acks,
        "linger.ms": linger_ms,
        **{setting: given[option] for option, setting in _SETTINGS},
    }
    if given["batch_size"] is not None:
        settings["batch.size"] = given["batch_size"]
    # The default of two minutes is too long for a user at a terminal when no broker answers.
    defaults = {"client.id": "console-producer", "max.block.ms": 15_000}
    merged = properties(bootstrap, config_file, producer_property, defaults)
    merged |= {key: value for key, value in settings.items() if value is not None}
    is_interactive = path is None and sys.stdin.isatty()
    failures = Failures()
    with ExitStack() as stack:
        source = sys.stdin.buffer if path is None else stack.enter_context(open(path, "rb"))
        stop = stack.enter_context(stop_on_signals())
        producer = stack.enter_context(Producer(merged))
        tell = stack.enter_context(progress(source, sys.stderr))
        try:
            for line in lines(source, stop, tell, is_interactive):
                _send(producer, how.message(topic, line), is_sync, failures)
        except ValueError as error:
            raise click.ClickException(f"a line cannot be read: {error}") from None
    failures.report()


class Failures:
    """Counts the messages that failed, and shows the first few."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, response: SendResponse) -> None:
        """Count a completed response if it failed, and print its error if it is one of the first few."""
        if response.error is not None:
            self.count += 1
            if self.count <= _ERRORS_SHOWN:
                click.echo(f"Error: a message was not written: {explained(response.error)}", err=True)

    def report(self) -> None:
        """Raise click.ClickException with the number of failures, if there were any."""
        if self.count:
            counted = "1 message was" if self.count == 1 else f"{self.count} messages were"
            raise click.ClickException(f"{counted} not written")


def _send(producer: Producer, message: Message, is_sync: bool, failures: Failures) -> None:
    response = producer.send(message)
    response.on_completion(failures.note)
    if is_sync:
        try:
            response.result()
        except ClosedError:
            raise
        except Exception:
            return  # `Failures` has counted it.


def lines(
    source: BinaryIO, stop: StopRequest, tell: Callable[[int], None], is_interactive: bool
) -> Iterator[bytes]:
    """Yield the lines of `source` without line ends, until it ends or a stop is requested.

    Calls `tell` with the number of bytes read. At a terminal, prints a prompt before each line.
    """
    while True:
        if is_interactive:
            click.echo(">", nl=False)
        try:
            # Interrupts are allowed only while reading: one during `send` could leave a message half queued.
            stop.interrupts = True
            line = b"" if stop else source.readline()
        except KeyboardInterrupt:
            return
        finally:
            stop.interrupts = False
        if not line:
            return
        tell(len(line))
        yield line.removesuffix(b"\n").removesuffix(b"\r")


if __name__ == "__main__":
    run(console_producer)
