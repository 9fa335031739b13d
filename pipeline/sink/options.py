"""The options of df.write and df.writeStream with format("holdfast"), declared as rows and read into one
value.

Names and meanings are those of Spark's Kafka sink; `delivery`, `jobKey` and `chunkBytes` are Holdfast's own.
Keys that begin with "kafka." are properties of the producer. Spark passes option names in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_log.clients.settings import Setting, SettingType, settings_table
from holdfast_log.pipeline.option_table import (
    BOOTSTRAP,
    CLIENT_PREFIX,
    OptionError,
    OptionTable,
    client_properties,
)

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"

SINK_OPTIONS: tuple[Setting, ...] = (
    Setting(
        "topic",
        SettingType.STRING,
        None,
        "Topic to which all rows are written. Without it each row names its topic in the column topic.",
    ),
    Setting(
        "delivery",
        SettingType.STRING,
        EXACTLY_ONCE,
        "What retries and restarts do. exactly-once writes each row once, whatever fails, and needs Holdfast "
        "brokers. at-least-once writes with the producer alone: faster, works with any Kafka broker, and a "
        "retried task writes its rows again.",
        choices=(EXACTLY_ONCE, AT_LEAST_ONCE),
    ),
    Setting(
        "jobKey",
        SettingType.STRING,
        None,
        "Name of a batch write. A write with the key of one that was completed writes nothing; one with the "
        "key of a write that failed completes it. Without it only the retries of tasks are recognised. Not "
        "for streaming queries, which are known by the id in their checkpoint.",
    ),
    Setting(
        "chunkBytes",
        SettingType.INT,
        900_000,
        "Bytes of rows that are written all or none, as one batch. The broker must accept batches of that "
        "size (max.message.bytes of the topic, 1048588 by default).",
        minimum=1,
    ),
)

_OF_SPARK = frozenset({"checkpointlocation", "path", "queryname"})
_TABLE = OptionTable(SINK_OPTIONS, "producer", ignored=_OF_SPARK)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one batch or streaming write."""

    topic: str | None
    is_exactly_once: bool
    job_key: str | None
    chunk_bytes: int
    client: Mapping[str, str]
    """Properties of the producer, without their prefix."""


def write_options(given: Mapping[str, str], *, is_streaming: bool) -> WriteOptions:
    """The options of a write. Raises `OptionError` with the allowed options or values."""
    settings = _TABLE.settings(given)
    client = client_properties(given)
    is_exactly_once = settings["delivery"] == EXACTLY_ONCE
    if settings["jobKey"] is not None and (is_streaming or not is_exactly_once):
        why = "a streaming query is known by its checkpoint" if is_streaming else "it needs exactly-once"
        raise OptionError(f"jobKey cannot be given here: {why}")
    if is_exactly_once and client.get("acks", "all") not in ("all", "-1"):
        raise OptionError("delivery=exactly-once needs kafka.acks=all: leave kafka.acks out")
    return WriteOptions(
        settings["topic"], is_exactly_once, settings["jobKey"], settings["chunkBytes"], client
    )


def sink_options_page() -> str:
    """The text of docs/spark-sink-options.md, made from the rows."""
    return (
        "# Options of the Spark sink\n\n"
        'The options of `df.write.format("holdfast")` and `df.writeStream.format("holdfast")`. '
        f"`{BOOTSTRAP}` must be given. Any other property of the producer can be given with the prefix "
        f"`{CLIENT_PREFIX}`; [settings.md](settings.md) lists them. What the options mean together is "
        "explained in [spark-sink.md](spark-sink.md).\n\n" + settings_table(SINK_OPTIONS)
    )


if __name__ == "__main__":
    print(sink_options_page(), end="")
