"""The properties of producer, consumer and admin: Kafka's names, types and defaults, one row each.

Properties come from a mapping or from a Java properties file. Names with underscores, as Python clients have
them (`bootstrap_servers`), stand for the dotted ones. An unknown key is an error that names the closest known
key, so that a misspelt `acks` does not go unnoticed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from holdfast_log.clients.arguments import PROPERTIES, shown
from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.group_settings import GROUP_ROWS
from holdfast_log.clients.property_hints import hint_for
from holdfast_log.clients.references import load_properties
from holdfast_log.clients.security_settings import SECURITY_ROWS
from holdfast_log.clients.settings import REQUIRED, Setting, SettingError, Settings, SettingType
from holdfast_log.protocol.compression import codec_named

Properties: TypeAlias = Mapping[str, Any] | str | os.PathLike[str]
"""Properties as a mapping, or the path of a properties file."""

STRING, BOOLEAN, INT, LONG = SettingType.STRING, SettingType.BOOLEAN, SettingType.INT, SettingType.LONG
LIST, PASSWORD = SettingType.LIST, SettingType.PASSWORD

_INT_MAX = 2**31 - 1


def _check_addresses(value: tuple[str, ...]) -> None:
    if not value:
        raise ValueError("host:port, more of them separated by commas")
    for address in value:
        split_address(address)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6::address]:port". Raises ValueError, saying what is allowed."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("host:port, more of them separated by commas")
    return host, int(port)


def _check_compression(value: str) -> None:
    codec_named(value)


def _check_transactional_id(value: str | None) -> None:
    if value == "":
        raise ValueError("a name that is not empty")


CONNECTION_ROWS = (
    Setting(
        "bootstrap.servers", LIST, REQUIRED,
        "Brokers that the client asks first for the cluster's metadata, as host:port, host:port.",
        check=_check_addresses,
    ),
    Setting(
        "client.id", STRING, "holdfast",
        "Name of the client in brokers' logs and quotas.",
    ),
    Setting(
        "request.timeout.ms", INT, 30_000,
        "Maximum time in ms that the client waits for a response. Then it closes the connection.",
        minimum=1,
    ),
    Setting(
        "metadata.max.age.ms", LONG, 300_000,
        "Age in ms at which the client renews its metadata of the cluster.",
        minimum=0,
    ),
    Setting(
        "reconnect.backoff.ms", LONG, 50,
        "Delay in ms before the client connects to a broker again after a failed connection. It doubles "
        "with every further failure, up to reconnect.backoff.max.ms.",
        minimum=0,
    ),
    Setting(
        "reconnect.backoff.max.ms", LONG, 1000,
        "Maximum delay in ms before the client connects to a broker again.",
        minimum=0,
    ),
    Setting(
        "retry.backoff.ms", LONG, 100,
        "Delay in ms before the client sends a failed request again. It doubles with every further failure, "
        "up to retry.backoff.max.ms.",
        minimum=0,
    ),
    Setting(
        "retry.backoff.max.ms", LONG, 1000,
        "Maximum delay in ms before the client sends a failed request again.",
        minimum=0,
    ),
    Setting(
        "throttle.max.ms", INT, 60_000,
        "Maximum time in ms for which a client sends nothing to a broker that throttles it. A broker that "
        "asks for more gets the next request after this time.",
        minimum=0,
    ),
    Setting(
        "socket.connection.setup.timeout.ms", LONG, 10_000,
        "Maximum time in ms that the client waits for a connection to be established.",
        minimum=1,
    ),
    Setting(
        "connections.max.idle.ms", LONG, 540_000,
        "Time in ms after which the client closes an unused connection; -1 for never.",
        minimum=-1,
    ),
    Setting(
        "send.buffer.bytes", INT, -1,
        "Size in bytes of the socket's send buffer; -1 for the operating system's default.",
        minimum=-1,
    ),
    Setting(
        "receive.buffer.bytes", INT, -1,
        "Size in bytes of the socket's receive buffer; -1 for the operating system's default, which "
        "grows as needed.",
        minimum=-1,
    ),
    Setting(
        "response.max.bytes", INT, 64 * 1024 * 1024,
        "Maximum size in bytes of a response, without the records that a fetch asks for. The client closes "
        "the connection of a larger one, and tries again. A topic with larger batches needs a larger value.",
        minimum=1024,
    ),
    *SECURITY_ROWS,
)  # fmt: skip
"""The settings of every client."""

_API_TIMEOUT = Setting(
    "default.api.timeout.ms", INT, 60_000,
    "Maximum time in ms, retries included, of a call that waits for brokers and is given no timeout.",
    minimum=0,
)  # fmt: skip

_BOOTSTRAP_TIMEOUT = Setting(
    "bootstrap.timeout.ms", LONG, 10_000,
    "Maximum time in ms until a broker answers for the first time. Then calls that wait fail, and the "
    "producer's records too, with an error that names each address and its cause. The default is the time "
    "after which one attempt to connect is given up: a wrong address will not become right by waiting, and "
    "a broker that starts together with the client has this long. Without effect once a broker has answered.",
    minimum=0,
)  # fmt: skip

PRODUCER_ROWS = (
    *CONNECTION_ROWS,
    _BOOTSTRAP_TIMEOUT,
    Setting(
        "acks", STRING, "all",
        "Replicas that must have a batch before the leader acknowledges it: 0 for none (no response), 1 "
        "for the leader, all (or -1) for all in-sync replicas.",
        choices=("all", "-1", "0", "1"),
    ),
    Setting(
        "enable.idempotence", BOOLEAN, True,
        "Whether brokers drop a batch that is sent twice, so that retries write no duplicates. Needs "
        "acks=all, retries above 0 and at most 5 requests in flight.",
    ),
    Setting(
        "compression.type", STRING, "none",
        "Codec with which the producer compresses batches: none, gzip, snappy, lz4 or zstd.",
        check=_check_compression,
    ),
    Setting(
        "compression.gzip.level", INT, None,
        "Compression level of gzip, from 1 (fastest) to 9 (smallest). Unset: the codec's default.",
        minimum=1, maximum=9,
    ),
    Setting(
        "compression.zstd.level", INT, None,
        "Compression level of zstd, from 1 (fastest) to 22 (smallest). Unset: the codec's default.",
        minimum=1, maximum=22,
    ),
    Setting(
        "batch.size", INT, 131_072,
        "Maximum size in bytes of a partition's batch before compression. A larger record is sent in a "
        "batch of its own. Kafka's producer has 16384 and reserves that memory; this one uses what the "
        "records need.",
        minimum=0,
    ),
    Setting(
        "linger.ms", LONG, 5,
        "Time in ms that the producer waits for more records before it sends a batch that is not full.",
        minimum=0,
    ),
    Setting(
        "buffer.memory", LONG, 33_554_432,
        "Maximum memory in bytes for records not yet acknowledged, Python's overhead included. When it "
        "is used up, send() waits.",
        minimum=1024,
    ),
    Setting(
        "max.block.ms", LONG, 60_000,
        "Maximum time in ms that send() waits for room in buffer.memory.",
        minimum=0,
    ),
    Setting(
        "max.request.size", INT, 1_048_576,
        "Maximum size in bytes of one request, and of one record, before compression.",
        minimum=1024,
    ),
    Setting(
        "max.in.flight.requests.per.connection", INT, 5,
        "Maximum number of requests to one broker without a response; at most 5 with idempotence. Order "
        "within a partition is kept in any case: without idempotence a partition has one batch in flight.",
        minimum=1,
    ),
    Setting(
        "retries", INT, _INT_MAX,
        "Maximum number of times that the producer sends a batch again after a retriable error.",
        minimum=0,
    ),
    Setting(
        "delivery.timeout.ms", INT, 120_000,
        "Maximum time in ms from send() to the acknowledgement of a record, retries included. Then the "
        "record fails.",
        minimum=1,
    ),
    Setting(
        "transactional.id", STRING, None,
        "Name under which the producer writes in transactions, the same after a restart. A producer that "
        "begins with a name fences the one that had it. Unset: no transactions.",
        check=_check_transactional_id,
    ),
    Setting(
        "transaction.timeout.ms", INT, 60_000,
        "Maximum time in ms that a transaction may be open, up to the brokers' transaction.max.timeout.ms. "
        "Then its coordinator aborts it, and fences the producer.",
        minimum=1,
    ),
)  # fmt: skip

CONSUMER_ROWS = (
    *CONNECTION_ROWS,
    _BOOTSTRAP_TIMEOUT,
    _API_TIMEOUT,
    *GROUP_ROWS,
    Setting(
        "client.rack", STRING, "",
        "Rack of the client. Leaders in other racks may have it read from followers in this one, where the "
        "brokers' `replica.selector.class` says so. Members of its group may take it into account when they "
        "assign partitions.",
    ),
    Setting(
        "auto.offset.reset", STRING, "latest",
        "Where a consumer starts without a valid offset: earliest, latest, or none, which raises an "
        "error.",
        choices=("earliest", "latest", "none"),
    ),
    Setting(
        "isolation.level", STRING, "read_uncommitted",
        "read_uncommitted: poll() returns all records. read_committed: it leaves out those of "
        "transactions that are open or were aborted.",
        choices=("read_uncommitted", "read_committed"),
    ),
    Setting(
        "fetch.min.bytes", INT, 1,
        "Number of bytes for which a broker waits before it answers a fetch, at most fetch.max.wait.ms "
        "long.",
        minimum=0,
    ),
    Setting(
        "fetch.max.wait.ms", INT, 500,
        "Maximum time in ms that a broker waits for fetch.min.bytes before it answers a fetch.",
        minimum=0,
    ),
    Setting(
        "fetch.max.bytes", INT, 52_428_800,
        "Maximum size in bytes of a fetch response, and approximate size of the consumer's read-ahead. A "
        "first batch that is larger is returned anyway.",
        minimum=0,
    ),
    Setting(
        "max.partition.fetch.bytes", INT, 1_048_576,
        "Maximum size in bytes of one partition's records in a fetch response. A first batch that is "
        "larger is returned anyway.",
        minimum=0,
    ),
    Setting(
        "max.poll.records", INT, 500,
        "Maximum number of records that one poll() returns.",
        minimum=1,
    ),
    Setting(
        "allow.auto.create.topics", BOOLEAN, False,
        "Whether the consumer asks brokers to create topics that do not exist, which they do if "
        "auto.create.topics.enable is true. Kafka's default is true, which hides misspelt names.",
    ),
    Setting(
        "unknown.topics", STRING, "warn",
        "What poll() does about a topic or partition that has not existed for three seconds. warn: reports "
        "it once, by an event and a warning through logging. raise: raises UnknownTopicOrPartitionError "
        "once. It is read as soon as it exists.",
        choices=("warn", "raise"),
    ),
    Setting(
        "deserialization.errors", STRING, "stop",
        "What poll() does with a record for which a deserializer raises. stop: raises "
        "RecordDeserializationError and returns nothing more of the partition until seek(). skip: leaves "
        "the record out and reports it as an event. dead-letter: passes it to the consumer's dead_letter, "
        "and continues when that has returned.",
        choices=("stop", "skip", "dead-letter"),
    ),
    Setting(
        "on.corrupt.batch", STRING, "stop",
        "What poll() does with a batch whose checksum, compression or records are damaged. stop: raises "
        "CorruptMessageError until seek(). skip: goes on behind the batch, and logs what it leaves out.",
        choices=("stop", "skip"),
    ),
    Setting(
        "check.crcs", BOOLEAN, True,
        "Whether the consumer verifies the checksum of every batch before it returns records of it.",
    ),
    Setting(
        "batch.max.bytes", INT, 256 * 1024 * 1024,
        "Maximum size in bytes of a batch after decompression. A larger one raises an error.",
        minimum=1,
    ),
)  # fmt: skip

ADMIN_ROWS = (*CONNECTION_ROWS, _BOOTSTRAP_TIMEOUT, _API_TIMEOUT)


def load_settings(rows: tuple[Setting, ...], properties: Properties, kind: str) -> Settings:
    """The checked values of `rows`. `kind` ("a producer") appears in error messages. Raises ConfigError, and
    TypeError for what are no properties."""
    PROPERTIES.check("", "properties", properties)
    try:
        values = dict(properties) if isinstance(properties, Mapping) else load_properties(properties)
    except OSError as error:
        hint = f'; for a broker\'s address, write {{"bootstrap.servers": {str(properties)!r}}}'
        raise ConfigError(
            f"cannot read the properties file: {error}{hint if _is_address(str(properties)) else ''}"
        ) from None
    except SettingError as error:
        raise ConfigError(str(error)) from None
    names = {row.name: row for row in rows}
    values = {_dotted(key, names): value for key, value in values.items()}
    try:
        settings = Settings(rows, values)
    except SettingError as error:
        raise ConfigError(str(error)) from None
    for key in settings.unknown:
        hint = hint_for(key, names, _names_beside(names))
        raise ConfigError(f"{key} is not a property of {kind}{f'; {hint}' if hint else ''}")
    return settings


def _names_beside(names: Mapping[str, object]) -> dict[str, set[str]]:
    """The names of the properties that other kinds of client have beside these."""
    kinds = {"a producer": PRODUCER_ROWS, "a consumer": CONSUMER_ROWS, "an admin client": ADMIN_ROWS}
    return {kind: {row.name for row in rows} - names.keys() for kind, rows in kinds.items()}


def _is_address(text: str) -> bool:
    try:
        split_address(text.split(",")[0])
    except ValueError:
        return False
    return True


def _dotted(key: object, names: Mapping[str, object]) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"the name of a property is a str, not {shown(key)}")
    dotted = key.replace("_", ".")
    return dotted if dotted in names else key


def producer_settings(properties: Properties) -> Settings:
    """The settings of a producer, also checked against one another. Raises ConfigError."""
    settings = load_settings(PRODUCER_ROWS, properties, "a producer")
    contradiction = _contradiction_to_idempotence(settings) if settings["enable.idempotence"] else None
    is_transactional = settings["transactional.id"] is not None
    if is_transactional and not settings["enable.idempotence"]:
        raise ConfigError("enable.idempotence=false is not possible with a transactional.id")
    if contradiction is None:
        return settings
    if is_transactional or "enable.idempotence" in settings.given:
        wanted = "a transactional.id" if is_transactional else "enable.idempotence=true"
        raise ConfigError(
            f"{contradiction}={settings[contradiction]} is not possible with {wanted}: it needs acks=all, "
            "retries above 0 and at most 5 requests in flight"
        )
    # Idempotence is on by default only: lower acks turn it off, as in Kafka's producer.
    return settings.with_values({"enable.idempotence": False})


def _contradiction_to_idempotence(settings: Settings) -> str | None:
    """The name of the first setting that contradicts idempotence; None if none does."""
    if required_acks(settings) != -1:
        return "acks"
    if settings["retries"] == 0:
        return "retries"
    if settings["max.in.flight.requests.per.connection"] > 5:
        return "max.in.flight.requests.per.connection"
    return None


def required_acks(settings: Settings) -> int:
    """`acks` as the protocol encodes it: -1 for all."""
    return -1 if settings["acks"] == "all" else int(settings["acks"])


def consumer_settings(properties: Properties) -> Settings:
    """The settings of a consumer, also checked against one another. Raises ConfigError."""
    settings = load_settings(CONSUMER_ROWS, properties, "a consumer")
    heartbeat_ms, session_ms = settings["heartbeat.interval.ms"], settings["session.timeout.ms"]
    if heartbeat_ms >= session_ms:
        raise ConfigError(
            f"heartbeat.interval.ms={heartbeat_ms} must be below session.timeout.ms={session_ms}, or the "
            "session expires between two heartbeats"
        )
    if settings["group.id"] == "":
        raise ConfigError("group.id is empty: set it to a name, or remove it")
    return settings


def admin_settings(properties: Properties) -> Settings:
    """The settings of an admin client. Raises ConfigError."""
    return load_settings(ADMIN_ROWS, properties, "an admin client")
