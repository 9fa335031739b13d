"""The properties of producer, consumer and admin: Kafka's names, types and defaults, a row each.

Properties come from a mapping or from a Java properties file. Keyword names in the manner of Python clients
(`bootstrap_servers`) are taken for the dotted ones. An unknown key is an error that names the closest known
one: a misspelt `acks` must not go unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from clients.errors import ConfigError
from clients.settings import REQUIRED, Setting, SettingError, Settings, SettingType, read_properties
from protocol.compression import codec_named

Properties: TypeAlias = Mapping[str, Any] | str | Path
"""Properties themselves, or the path of a file of them."""

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


CONNECTION_ROWS = (
    Setting(
        "bootstrap.servers", LIST, REQUIRED,
        "Brokers to ask first, as host:port, host:port. They tell of the rest of the cluster.",
        check=_check_addresses,
    ),
    Setting("client.id", STRING, "holdfast", "How the client names itself to brokers, in logs and quotas."),
    Setting(
        "request.timeout.ms", INT, 30_000,
        "How long a response may take before the connection is given up.", minimum=1,
    ),
    Setting(
        "metadata.max.age.ms", LONG, 300_000,
        "How old the view of the cluster may become before it is renewed.",
        minimum=0,
    ),
    Setting(
        "reconnect.backoff.ms", LONG, 50,
        "The pause before a broker is tried again after a failed connection; doubled at every further "
        "failure.",
        minimum=0,
    ),
    Setting("reconnect.backoff.max.ms", LONG, 1000, "The longest such pause.", minimum=0),
    Setting(
        "retry.backoff.ms", LONG, 100, "The pause before a request that failed is sent again.", minimum=0
    ),
    Setting("retry.backoff.max.ms", LONG, 1000, "The longest such pause, after many failures.", minimum=0),
    Setting(
        "socket.connection.setup.timeout.ms", LONG, 10_000, "How long a connection may take to come about.",
        minimum=1,
    ),
    Setting(
        "connections.max.idle.ms", LONG, 540_000, "Connections unused for so long are closed; -1: never.",
        minimum=-1,
    ),
    Setting(
        "send.buffer.bytes", INT, -1, "The socket's send buffer; -1: the system's choice.", minimum=-1
    ),
    Setting(
        "receive.buffer.bytes", INT, -1,
        "The socket's receive buffer; -1: the system's choice, which grows with the need.", minimum=-1
    ),
    Setting(
        "response.max.bytes", INT, 256 * 1024 * 1024,
        "A response that claims to be larger is not read; the connection is closed.", minimum=1024,
    ),
    Setting(
        "security.protocol", STRING, "PLAINTEXT", "How brokers are spoken to.", choices=("PLAINTEXT", "SSL")
    ),
    Setting("ssl.truststore.location", STRING, None, "A PEM file of the certificate authorities to trust."),
    Setting("ssl.keystore.location", STRING, None, "A PEM file with the client's certificate and key."),
    Setting("ssl.key.password", PASSWORD, None, "The password of the key in ssl.keystore.location."),
    Setting(
        "ssl.endpoint.identification.algorithm", STRING, "https",
        "https: the broker's certificate must name the host that was dialled; empty: it need not.",
        choices=("https", ""),
    ),
)  # fmt: skip
"""What every client has."""

_API_TIMEOUT = Setting(
    "default.api.timeout.ms", INT, 60_000,
    "How long a call may take that waits for brokers, all its attempts together, where it is given no "
    "timeout.",
    minimum=0,
)  # fmt: skip

_BOOTSTRAP_TIMEOUT = Setting(
    "bootstrap.timeout.ms", LONG, None,
    "How long the bootstrap servers may take until one of them answers for the first time; then that is an "
    "error. Unset: as long as the call that needs them may take.",
    minimum=0,
)  # fmt: skip

PRODUCER_ROWS = (
    *CONNECTION_ROWS,
    Setting(
        "acks", STRING, "all",
        "Who must have a batch before it is acknowledged: 0 nobody, 1 the leader, all (or -1) every replica "
        "in sync.",
        choices=("all", "-1", "0", "1"),
    ),
    Setting(
        "enable.idempotence", BOOLEAN, True,
        "Whether brokers recognise a batch that is sent twice; needs acks=all. It is what keeps retries from "
        "writing duplicates.",
    ),
    Setting(
        "compression.type", STRING, "none", "none, gzip, snappy, lz4 or zstd: how batches are compressed.",
        check=_check_compression,
    ),
    Setting("compression.gzip.level", INT, None, "From 1, quick, to 9, thorough.", minimum=1, maximum=9),
    Setting("compression.zstd.level", INT, None, "From 1, quick, to 22, thorough.", minimum=1, maximum=22),
    Setting(
        "batch.size", INT, 131_072,
        "Bytes, before compression, that a partition's batch may come to. A larger record is a batch alone. "
        "Kafka's own producer has 16384, and sets that memory aside; this one takes what the records need.",
        minimum=0,
    ),
    Setting(
        "linger.ms", LONG, 5, "How long a batch that is not full waits for more records before it is sent.",
        minimum=0,
    ),
    Setting(
        "buffer.memory", LONG, 33_554_432,
        "Bytes that records not yet acknowledged may take, what Python needs for them included. When it is "
        "used "
        "up, send() waits.", minimum=1024,
    ),
    Setting(
        "max.block.ms", LONG, 60_000, "How long send() may wait for room in buffer.memory.", minimum=0
    ),
    Setting(
        "max.request.size", INT, 1_048_576,
        "Bytes that one request, and one record, may come to before compression.", minimum=1024,
    ),
    Setting(
        "max.in.flight.requests.per.connection", INT, 5,
        "Requests sent to one broker before its first response. At most 5 with idempotence. Order within a "
        "partition is kept whatever it is: without idempotence a partition has one batch under way.",
        minimum=1,
    ),
    Setting(
        "retries", INT, _INT_MAX, "How often a batch is sent again after an error that may pass.", minimum=0
    ),
    Setting(
        "delivery.timeout.ms", INT, 120_000,
        "How long after send() a record must be acknowledged, all attempts together, before it counts as "
        "failed.",
        minimum=1,
    ),
)  # fmt: skip

_GROUP_ROWS = (
    Setting(
        "group.id", STRING, None,
        "The consumer group, whose members share topics and committed offsets. Without one, a consumer reads "
        "all it is told to.",
    ),
    Setting(
        "group.protocol", STRING, "classic",
        "classic: Kafka's, in which a member shares out the partitions; stock consumers can take part. "
        "managed: the coordinator shares them out, and can rewind the group while it works.",
        choices=("classic", "managed"),
    ),
    Setting(
        "group.instance.id", STRING, None,
        "A name that stays when the consumer is started anew: it then gets its partitions back without a "
        "rebalance, if it is back within session.timeout.ms.",
    ),
    Setting(
        "session.timeout.ms", INT, 45_000,
        "After such a silence a member counts as gone. This client sends its heartbeats from poll(), so that "
        "poll() must be called more often than that.",
        minimum=1,
    ),
    Setting(
        "heartbeat.interval.ms", INT, 3_000,
        "How often the coordinator is told that this member is alive. Below session.timeout.ms; as a rule at "
        "most a third of it.",
        minimum=1,
    ),
    Setting(
        "max.poll.interval.ms", INT, 300_000,
        "How long a member may take for what poll() gave, and the group waits for it in a rebalance. After "
        "that its partitions count as lost.",
        minimum=1,
    ),
    Setting(
        "partition.assignment.strategy", LIST, ("range", "cooperative-sticky"),
        "How a classic group shares out partitions, the first that all members know: range, roundrobin, "
        "sticky, cooperative-sticky, or module:class of one of your own. Members keep their partitions in a "
        "rebalance where all that are named are cooperative.",
    ),
    Setting(
        "group.remote.assignor", STRING, "",
        "How a managed group shares them out, for a group that is new; empty: as the coordinator likes.",
        choices=("", "range", "roundrobin", "sticky"),
    ),
    Setting(
        "group.single.reader", BOOLEAN, False,
        "Whether brokers let nobody of a managed group read a partition but the member that it was given to: "
        "one that has not noticed that it lost the partition cannot read on. For a group that is new; one "
        "that is there has to have been made so.",
    ),
    Setting(
        "group.ephemeral", BOOLEAN, False,
        "Whether a managed group that is new is to go, with its offsets, when its last member does.",
    ),
    Setting(
        "enable.auto.commit", BOOLEAN, True,
        "Whether poll() and close() commit what earlier calls of poll() have given.",
    ),
    Setting("auto.commit.interval.ms", INT, 5_000, "How often poll() does so.", minimum=0),
)  # fmt: skip

CONSUMER_ROWS = (
    *CONNECTION_ROWS,
    _BOOTSTRAP_TIMEOUT,
    _API_TIMEOUT,
    *_GROUP_ROWS,
    Setting("client.rack", STRING, "", "Where the client stands, for brokers that prefer close replicas."),
    Setting(
        "auto.offset.reset", STRING, "latest",
        "Where to begin where there is no position, or one that the partition does not hold: earliest, "
        "latest, "
        "or none, an error.", choices=("earliest", "latest", "none"),
    ),
    Setting(
        "isolation.level", STRING, "read_uncommitted",
        "Whether records of transactions are seen that are not committed, or were aborted.",
        choices=("read_uncommitted", "read_committed"),
    ),
    Setting(
        "fetch.min.bytes", INT, 1, "A broker answers a fetch when it has so many bytes,", minimum=0
    ),
    Setting("fetch.max.wait.ms", INT, 500, "or after so long.", minimum=0),
    Setting(
        "fetch.max.bytes", INT, 52_428_800,
        "Bytes of one response, and about what the consumer holds ahead of poll(). A first batch that is "
        "larger "
        "comes all the same.", minimum=0,
    ),
    Setting(
        "max.partition.fetch.bytes", INT, 1_048_576, "Bytes of one partition in one response; likewise.",
        minimum=0,
    ),
    Setting("max.poll.records", INT, 500, "The most records that one poll() gives.", minimum=1),
    Setting(
        "check.crcs", BOOLEAN, True,
        "Whether the checksum of every batch is verified before its records are used."
    ),
    Setting(
        "batch.max.bytes", INT, 256 * 1024 * 1024,
        "Bytes that one compressed batch may come to; a larger one is an error, not a filled memory.",
        minimum=1,
    ),
)  # fmt: skip

ADMIN_ROWS = (*CONNECTION_ROWS, _BOOTSTRAP_TIMEOUT, _API_TIMEOUT)


def load_settings(rows: tuple[Setting, ...], properties: Properties, kind: str) -> Settings:
    """The checked values for `rows`; `kind` ("a producer") is for the error messages. Raises ConfigError."""
    try:
        values = read_properties(properties) if isinstance(properties, str | Path) else dict(properties)
    except OSError as error:
        raise ConfigError(f"the properties cannot be read: {error}") from None
    names = {row.name for row in rows}
    values = {_dotted(key, names): value for key, value in values.items()}
    try:
        settings = Settings(rows, values)
    except SettingError as error:
        raise ConfigError(str(error)) from None
    for key, closest in settings.unknown.items():
        hint = "" if closest is None else f"; did you mean {closest}?"
        raise ConfigError(f"{key} is no property of {kind}{hint}")
    return settings


def _dotted(key: str, names: set[str]) -> str:
    dotted = key.replace("_", ".")
    return dotted if dotted in names else key


def producer_settings(properties: Properties) -> Settings:
    """The settings of a producer, also checked against one another. Raises ConfigError."""
    settings = load_settings(PRODUCER_ROWS, properties, "a producer")
    contradiction = _contradiction_to_idempotence(settings) if settings["enable.idempotence"] else None
    if contradiction is None:
        return settings
    if "enable.idempotence" in settings.given:
        raise ConfigError(
            f"{contradiction}={settings[contradiction]} is not possible with enable.idempotence=true: "
            "it needs acks=all, retries above 0 and at most 5 requests in flight"
        )
    # Nobody asked for idempotence: whoever lowers acks has given it up, as with Kafka's own producer.
    return settings.with_values({"enable.idempotence": False})


def _contradiction_to_idempotence(settings: Settings) -> str | None:
    """The first setting that idempotence does not go together with."""
    if required_acks(settings) != -1:
        return "acks"
    if settings["retries"] == 0:
        return "retries"
    if settings["max.in.flight.requests.per.connection"] > 5:
        return "max.in.flight.requests.per.connection"
    return None


def required_acks(settings: Settings) -> int:
    """`acks` as the protocol numbers it: -1 for all."""
    return -1 if settings["acks"] == "all" else int(settings["acks"])


def consumer_settings(properties: Properties) -> Settings:
    """The settings of a consumer, also checked against one another. Raises ConfigError."""
    settings = load_settings(CONSUMER_ROWS, properties, "a consumer")
    heartbeat_ms, session_ms = settings["heartbeat.interval.ms"], settings["session.timeout.ms"]
    if heartbeat_ms >= session_ms:
        raise ConfigError(
            f"heartbeat.interval.ms={heartbeat_ms} is not below session.timeout.ms={session_ms}: the session "
            "would end between two heartbeats"
        )
    if settings["group.id"] == "":
        raise ConfigError("group.id is empty: name the group, or leave the property out")
    return settings


def admin_settings(properties: Properties) -> Settings:
    """The settings of an admin client. Raises ConfigError."""
    return load_settings(ADMIN_ROWS, properties, "an admin client")
