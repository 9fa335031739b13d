"""The options of reads with format("holdfast"), batch and streaming: rows, and the values made of them.

Names and meanings are those of Spark's Kafka source, so that an existing job changes only `format("kafka")`.
Keys that begin with "kafka." are properties of the consumer. Spark passes option names in lower case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast_log.clients.settings import Setting, Settings, SettingType, settings_table
from holdfast_log.pipeline.boundaries import (
    EARLIEST,
    LATEST,
    Boundary,
    Offsets,
    end_of,
    is_number,
    only_one,
    start_of,
)
from holdfast_log.pipeline.option_table import (
    BOOTSTRAP,
    CLIENT_PREFIX,
    OptionError,
    OptionTable,
    client_properties,
)
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Partitions to read: `partitions`, or all of the topics `names`, or all of topics matching `pattern`."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class LookupRetries:
    """How often, and after how many ms, the driver repeats a look-up of offsets that failed or went back."""

    count: int
    interval_ms: int


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one batch read, or of each micro-batch of a streaming read."""

    topics: TopicSelection
    start: Boundary
    end: Boundary
    without_match: str
    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    lookups: LookupRetries
    client: Mapping[str, str]
    """Properties of the consumer, without their prefix."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of one streaming read. None: no limit."""

    read: ReadOptions
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    """After this time since the last batch, a batch starts even if it has fewer than `min_offsets`."""
    reader_group: str | None
    """The group in which this run claims its partitions."""


def _json_object(value: Any) -> None:
    try:
        if not isinstance(json.loads(value), dict):
            raise ValueError("a JSON object")
    except json.JSONDecodeError:
        raise ValueError("a JSON object") from None


def _regex(value: Any) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None


def _named_or_json(*names_and_value: Any) -> None:
    *names, value = names_and_value
    if value in names:
        return
    try:
        _json_object(value)
    except ValueError:
        example = '{"topic": {"0": 23, "1": 42}}'
        raise ValueError(f"{' or '.join(names)}, or an offset for each partition: {example}") from None


_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(value: str) -> int:
    """A duration as Spark writes it: "15m", "500ms", or a number of ms."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise ValueError("a duration such as 500ms, 10s, 15m or 1h")
    return int(found[1]) * _UNITS_MS[found[2]]


def _duration(value: Any) -> None:
    _duration_ms(value)


_STRING, _LONG, _INT, _BOOLEAN = SettingType.STRING, SettingType.LONG, SettingType.INT, SettingType.BOOLEAN

OPTIONS: tuple[Setting, ...] = (
    Setting("subscribe", SettingType.LIST, None, "Topics that the job reads, separated by commas."),
    Setting(
        "subscribePattern",
        _STRING,
        None,
        "Regular expression; the job reads the topics whose whole name matches it.",
        check=_regex,
    ),
    Setting(
        "assign",
        _STRING,
        None,
        'Partitions that the job reads, as JSON: {"topic": [0, 1]}.',
        check=_json_object,
    ),
    Setting(
        "startingOffsets",
        _STRING,
        None,
        "First offset that the job reads: earliest (the default of a batch read), latest (the default of a "
        "new streaming query, and only for those), or JSON with an offset for every partition: "
        '{"topic": {"0": 23, "1": -2}}. -2 is the first record, -1 the end. A streaming query that was '
        "started before continues from its checkpoint.",
        check=partial(_named_or_json, "earliest", "latest"),
    ),
    Setting(
        "endingOffsets",
        _STRING,
        None,
        "Batch only: offset before which the job stops: latest (the default; the end of each partition when "
        'the job is planned), or JSON with an offset for every partition: {"topic": {"0": 50, "1": -1}}. '
        "-1 is the end.",
        check=partial(_named_or_json, "latest"),
    ),
    Setting(
        "startingTimestamp",
        _LONG,
        None,
        "Time in ms since 1970; the job starts at the first record of each partition that is not older.",
        minimum=0,
    ),
    Setting(
        "endingTimestamp",
        _LONG,
        None,
        "Batch only: time in ms since 1970; the job stops before the first record of each partition that is "
        "not older.",
        minimum=0,
    ),
    Setting(
        "startingOffsetsByTimestamp",
        _STRING,
        None,
        'startingTimestamp for each partition, in ms since 1970, as JSON: {"topic": {"0": 1700000000000}}.',
        check=_json_object,
    ),
    Setting(
        "endingOffsetsByTimestamp",
        _STRING,
        None,
        "Batch only: endingTimestamp for each partition, in ms since 1970, as JSON: "
        '{"topic": {"0": 1700000000000}}.',
        check=_json_object,
    ),
    Setting(
        "startingOffsetsByTimestampStrategy",
        _STRING,
        "error",
        "What the job does if a partition has no record at or after its starting time: error fails the job, "
        "latest skips the partition.",
        choices=("error", "latest"),
    ),
    Setting(
        "failOnDataLoss",
        _BOOLEAN,
        True,
        "Whether the job fails if requested records no longer exist (because of retention, or because the "
        "topic was recreated), or if partitions of a streaming query have disappeared. With false, it reads "
        "the records that are left.",
    ),
    Setting("includeHeaders", _BOOLEAN, False, "Whether the result has the column headers."),
    Setting(
        "minPartitions",
        _INT,
        None,
        "Minimum number of Spark partitions; larger topic partitions are divided to reach it.",
        minimum=1,
    ),
    Setting(
        "maxRecordsPerPartition",
        _LONG,
        None,
        "Maximum number of offsets in one Spark partition; larger topic partitions are divided.",
        minimum=1,
    ),
    Setting(
        "kafkaConsumer.pollTimeoutMs",
        _LONG,
        120_000,
        "Maximum time in ms that a task waits for records before it fails.",
        minimum=1,
    ),
    Setting(
        "fetchOffset.numRetries",
        _INT,
        3,
        "How many times the driver repeats a look-up of offsets that a broker refused, or that gave an "
        "offset lower than one seen before. If no broker answers, the look-up has already been repeated by "
        "the client (bootstrap.timeout.ms, default.api.timeout.ms), and fails.",
        minimum=0,
    ),
    Setting(
        "fetchOffset.retryIntervalMs",
        _LONG,
        10,
        "Time in ms between two such look-ups.",
        minimum=0,
    ),
    Setting(
        "maxOffsetsPerTrigger",
        _LONG,
        None,
        "Streaming only: maximum number of offsets in one micro-batch, divided over the partitions by how "
        "many each has.",
        minimum=1,
    ),
    Setting(
        "minOffsetsPerTrigger",
        _LONG,
        None,
        "Streaming only: number of offsets for which a micro-batch waits, for maxTriggerDelay at most.",
        minimum=1,
    ),
    Setting(
        "maxTriggerDelay",
        _STRING,
        "15m",
        "Streaming only: time since the last micro-batch after which the next one starts even if it has "
        "fewer offsets than minOffsetsPerTrigger, such as 500ms, 10s, 15m or 1h.",
        check=_duration,
    ),
    Setting(
        "groupIdPrefix",
        _STRING,
        None,
        "Beginning of the client id of every consumer, by which brokers name it in logs and quotas. The "
        "source reads by offsets: it joins no consumer group and commits no offsets. Kafka's source begins "
        "the names of its groups with it. kafka.group.id, if given, takes precedence.",
    ),
    Setting(
        "readerGroup",
        _STRING,
        None,
        "Streaming only, and not an option of Kafka's source: name of a group in which the query claims its "
        "partitions before it reads them. The brokers refuse reads of a former owner, so two runs of one "
        "query never both read. A second run fails after 20 s, with the name of the first.",
    ),
)

_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

_REFUSED_PROPERTIES = {
    "auto.offset.reset": "startingOffsets says where a read begins",
    "enable.auto.commit": "the source commits no offsets; a streaming query keeps them in its checkpoint",
    "key.deserializer": "keys are always bytes; convert them in the query, as in cast(key AS STRING)",
    "value.deserializer": "values are always bytes; convert them in the query, as in cast(value AS STRING)",
    "interceptor.classes": "interceptors are Java classes, and the source runs in Python",
}
"""Properties of the consumer that Spark's Kafka source refuses too, with the reason."""

_TABLE = OptionTable(OPTIONS, "consumer")


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read. Raises `OptionError` with the allowed options or values."""
    settings = _TABLE.settings(given)
    _must_not_have(given, _STREAM_ONLY, "is for readStream: a batch read takes all that its offsets name")
    _must_not_have(given, ("readerGroup",), "is for readStream: no process lives as long as a batch read")
    options = _read_options(given, settings, EARLIEST)
    if isinstance(options.start, Offsets) and LATEST in (
        options.start.default,
        *options.start.partitions.values(),
    ):
        raise OptionError("startingOffsets cannot be latest (-1) in a batch read: it would read nothing")
    return options


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """The options of a streaming read. Raises `OptionError` with the allowed options or values."""
    settings = _TABLE.settings(given)
    _must_not_have(given, _BATCH_ONLY, "is for batch reads: a streaming query has no end")
    most, least = settings["maxOffsetsPerTrigger"], settings["minOffsetsPerTrigger"]
    if most is not None and least is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger={least} is larger than maxOffsetsPerTrigger={most}")
    return StreamOptions(
        read=_read_options(given, settings, LATEST),
        max_offsets=most,
        min_offsets=least,
        max_delay_ms=_duration_ms(settings["maxTriggerDelay"]),
        reader_group=settings["readerGroup"],
    )


def _read_options(given: Mapping[str, str], settings: Settings, default_start: int) -> ReadOptions:
    client = _client(given, settings)
    return ReadOptions(
        topics=_topics(settings),
        start=start_of(settings, default_start),
        end=end_of(settings),
        without_match=settings["startingOffsetsByTimestampStrategy"],
        fail_on_data_loss=settings["failOnDataLoss"],
        include_headers=settings["includeHeaders"],
        poll_timeout_ms=settings["kafkaConsumer.pollTimeoutMs"],
        min_partitions=settings["minPartitions"],
        max_records_per_partition=settings["maxRecordsPerPartition"],
        lookups=LookupRetries(settings["fetchOffset.numRetries"], settings["fetchOffset.retryIntervalMs"]),
        client=client,
    )


def _client(given: Mapping[str, str], settings: Settings) -> dict[str, str]:
    client = client_properties(given)
    for name, reason in _REFUSED_PROPERTIES.items():
        if client.get(name, "none") != "none":
            raise OptionError(f"{CLIENT_PREFIX}{name} cannot be set: {reason}")
    # A consumer with a group would commit offsets; the name serves as client id only.
    named = client.pop("group.id", None) or settings["groupIdPrefix"]
    if named:
        client.setdefault("client.id", f"{named}-holdfast-spark")
    return client


def _must_not_have(given: Mapping[str, str], names: tuple[str, ...], reason: str) -> None:
    lowered = {key.lower() for key in given}
    for name in names:
        if name.lower() in lowered:
            raise OptionError(f"{name} {reason}")


def includes_headers(given: Mapping[str, str]) -> bool:
    """Whether the schema has the column headers. Does not check the other options."""
    own = {key: value for key, value in given.items() if key.lower() == "includeheaders"}
    return bool(_TABLE.settings(own)["includeHeaders"])


def _topics(settings: Settings) -> TopicSelection:
    match only_one(settings, "subscribe", "subscribePattern", "assign"):
        case "subscribe":
            if not settings["subscribe"]:
                raise OptionError("subscribe names no topic")
            return TopicSelection(names=tuple(dict.fromkeys(settings["subscribe"])))
        case "subscribePattern":
            return TopicSelection(pattern=settings["subscribePattern"])
        case "assign":
            return TopicSelection(partitions=_assigned(settings["assign"]))
    raise OptionError('no topic to read: give .option("subscribe", "topic"), or subscribePattern, or assign')


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    found = []
    for topic, numbers in json.loads(text).items():
        if not isinstance(numbers, list) or not all(is_number(number) and number >= 0 for number in numbers):
            raise OptionError(f'assign={text!r} is not allowed: expected {{"topic": [0, 1]}}')
        found += [TopicPartition(topic, number) for number in numbers]
    if not found:
        raise OptionError("assign names no partition")
    return tuple(sorted(set(found)))


def options_page() -> str:
    """The text of docs/spark-options.md, made from the rows."""
    return (
        "# Options of the Spark data source\n\n"
        'The options of `spark.read.format("holdfast")` and `spark.readStream.format("holdfast")`. Their '
        "names and meanings are those of Spark's Kafka source; one that does not apply is "
        "refused with the reason. "
        f"`{BOOTSTRAP}` must be given, and one of `subscribe`, `subscribePattern` and `assign`.\n"
        f"Any other property of the consumer can be given with the prefix `{CLIENT_PREFIX}`; "
        "[settings.md](settings.md) lists them. Refused are "
        + "; ".join(f"`{CLIENT_PREFIX}{name}` ({reason})" for name, reason in _REFUSED_PROPERTIES.items())
        + ".\n\n"
        + settings_table(OPTIONS)
    )


if __name__ == "__main__":
    print(options_page(), end="")
