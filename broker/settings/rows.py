"""All settings of the broker, one row each: general ones here, the others declared in their own packages.

`python -m holdfast_log.broker.settings.rows` prints docs/settings.md: the settings of broker, topics,
producer, consumer and admin client.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from holdfast_log.broker.cleaning.settings import SETTINGS as CLEANING_SETTINGS
from holdfast_log.broker.groups import settings as groups
from holdfast_log.broker.log.settings import BROKER_SETTINGS as LOG_SETTINGS
from holdfast_log.broker.log.settings import TOPIC_SETTINGS
from holdfast_log.broker.metrics.settings import SETTINGS as METRICS_SETTINGS
from holdfast_log.broker.network.settings import SETTINGS as NETWORK_SETTINGS
from holdfast_log.broker.network.settings import listener_settings
from holdfast_log.broker.network.tls.settings import SETTINGS as TLS_SETTINGS
from holdfast_log.broker.network.tls.settings import tls_settings_of
from holdfast_log.broker.ownership import settings as ownership
from holdfast_log.broker.quotas import settings as quotas
from holdfast_log.broker.replication.settings import SETTINGS as REPLICATION_SETTINGS
from holdfast_log.broker.security.sasl import settings as sasl
from holdfast_log.broker.security.settings import SETTINGS as AUTHORIZER_SETTINGS
from holdfast_log.broker.settings.zookeeper_tls import SETTINGS as ZOOKEEPER_TLS_SETTINGS
from holdfast_log.broker.transactions import settings as transactions
from holdfast_log.clients.config import ADMIN_ROWS, CONSUMER_ROWS, PRODUCER_ROWS
from holdfast_log.clients.settings import (
    REQUIRED,
    Setting,
    SettingError,
    Settings,
    SettingType,
    settings_table,
)
from holdfast_log.protocol.inter_broker import NEWEST, OLDEST

_MAX_PORTABLE_ID = 2**31 - 1
_PROCESSES_MAX = 256
AUTO = "auto"
"""Value of `broker.processes`: as many as the machine has processor cores."""


_ZOOKEEPER_SERVER = re.compile(r"([^\s:/,@\[\]]+|\[[0-9a-fA-F:.%]+\])(:(?P<port>\d{1,5}))?")
_CHROOT = re.compile(r"(/[^/\s]+)*/?")


def _zookeeper_servers(value: Any) -> None:
    """Check for the format that ZooKeeper's own clients accept."""
    servers, slash, path = str(value).partition("/")
    for server in servers.split(","):
        matched = _ZOOKEEPER_SERVER.fullmatch(server.strip())
        if matched is None or not 1 <= int(matched["port"] or 2181) <= 65535:
            raise ValueError(
                "at least one host:port, comma-separated, with an optional /chroot after the last one"
            )
    if not _CHROOT.fullmatch(slash + path) or {".", ".."} & set(path.split("/")):
        raise ValueError(f"a path of names after the servers, not {slash + path}")


def _protocol_version(value: Any) -> None:
    if value > NEWEST:
        raise ValueError(
            f"a whole number from {OLDEST} to {NEWEST}, the newest version that this Holdfast speaks"
        )


def _process_count(value: Any) -> None:
    is_number = str(value).isascii() and str(value).isdigit()
    if value != AUTO and not (is_number and 1 <= int(value) <= _PROCESSES_MAX):
        raise ValueError(f"a whole number from 1 to {_PROCESSES_MAX}, or {AUTO}")


IDENTITY: tuple[Setting, ...] = (
    Setting(
        "broker.id",
        SettingType.INT,
        -1,
        "This broker's id in the cluster. With -1 the broker takes a free id above `reserved.broker.max.id` "
        "from ZooKeeper and keeps it in its log directories.",
        minimum=-1,
        maximum=_MAX_PORTABLE_ID,
    ),
    Setting(
        "reserved.broker.max.id",
        SettingType.INT,
        1000,
        "Highest value of `broker.id` that may be set; generated ids are higher.",
        minimum=0,
    ),
    Setting(
        "broker.rack",
        SettingType.STRING,
        None,
        "Rack of this broker. The controller spreads the replicas of a partition over racks.",
    ),
    Setting(
        "stop.timeout.ms",
        SettingType.LONG,
        240_000,
        "Maximum time in ms of a stop in order, with SIGTERM or SIGINT. A broker that is not done by then "
        "ends at once, with exit status 1. The time limit of a service manager must be longer.",
        minimum=1,
    ),
    Setting(
        "inter.broker.protocol.version",
        SettingType.INT,
        NEWEST,
        "Version of the protocol between brokers that this broker uses. All brokers of a cluster must speak "
        "it: keep it at the version of the brokers that are to be upgraded, and raise it once all are. "
        "The default is the newest that this Holdfast speaks. The numbers are Holdfast's, not Kafka's.",
        minimum=OLDEST,
        check=_protocol_version,
    ),
    Setting(
        "broker.processes",
        SettingType.STRING,
        "1",
        "Number of brokers that server-start.sh runs from this file, each a process of its own, which uses "
        "one processor core; `auto`: one for each core. docs/operating.md says which ids, ports and "
        "directories they get.",
        check=_process_count,
    ),
    Setting(
        "broker.machine",
        SettingType.STRING,
        None,
        "Name of the machine of this broker: brokers that name the same one never have replicas of the same "
        "partition. With `broker.processes` above 1 the default is the host name with the machine's id. The "
        "name is also the rack of a broker without `broker.rack`.",
    ),
)

ZOOKEEPER: tuple[Setting, ...] = (
    Setting(
        "zookeeper.connect",
        SettingType.STRING,
        REQUIRED,
        "ZooKeeper's servers as host:port, comma-separated, with an optional /chroot at the end, under which "
        "this cluster keeps all its data.",
        check=_zookeeper_servers,
    ),
    Setting(
        "zookeeper.connection.timeout.ms",
        SettingType.INT,
        None,
        "Maximum time in ms a starting broker waits for ZooKeeper. Unset: `zookeeper.session.timeout.ms`.",
        minimum=1,
    ),
    Setting(
        "zookeeper.session.timeout.ms",
        SettingType.INT,
        18_000,
        "Time in ms without contact after which ZooKeeper ends a broker's session. The controller then "
        "treats the broker as dead.",
        minimum=1,
    ),
    Setting(
        "clock.difference.max.ms",
        SettingType.LONG,
        600_000,
        "Maximum difference in ms between this machine's clock and that of ZooKeeper's leader with which a "
        "broker starts: a clock that is far off has retention remove records too early, or keep them. -1: "
        "any.",
        minimum=-1,
    ),
    Setting(
        "zookeeper.digest.file",
        SettingType.STRING,
        None,
        "File with USER:PASSWORD on one line, by which this broker authenticates itself to ZooKeeper (scheme "
        "digest). Only its owner may read it (chmod 600). All brokers of a cluster have the same. It is read "
        "at start.",
    ),
    Setting(
        "zookeeper.sasl.file",
        SettingType.STRING,
        None,
        "File with USER:PASSWORD on one line, by which this broker authenticates itself to ZooKeeper by SASL "
        "(DIGEST-MD5), as the section Client of Kafka's JAAS file. Only its owner may read it (chmod 600). "
        "It is read at start. Needs the extra zookeeper-sasl.",
    ),
    Setting(
        "zookeeper.set.acl",
        SettingType.BOOLEAN,
        False,
        "Whether only this cluster's brokers may write the znodes that they create. Others may read them, "
        "but not the settings of users and brokers, nor the owners. Needs zookeeper.digest.file or "
        "zookeeper.sasl.file. "
        "scripts/zookeeper-security-migration.sh changes the znodes that exist.",
    ),
)

TOPICS: tuple[Setting, ...] = (
    Setting(
        "num.partitions",
        SettingType.INT,
        1,
        "Number of partitions of a new topic if the request gives none.",
        minimum=1,
    ),
    Setting(
        "default.replication.factor",
        SettingType.INT,
        1,
        "Number of replicas of each partition of a new topic if the request gives none.",
        minimum=1,
    ),
    Setting(
        "auto.create.topics.enable",
        SettingType.BOOLEAN,
        True,
        "Whether a missing topic is created when a client requests its metadata.",
    ),
    Setting(
        "delete.topic.enable",
        SettingType.BOOLEAN,
        True,
        "Whether clients may delete topics. With false the broker answers TOPIC_DELETION_DISABLED.",
    ),
    Setting(
        "max.request.partition.size.limit",
        SettingType.INT,
        2_000,
        "Maximum number of partitions in one response to DescribeTopicPartitions. Clients ask for the rest in"
        " further requests.",
        minimum=1,
    ),
    Setting(
        "request.partitions.max",
        SettingType.INT,
        5_000,
        "Maximum number of partitions that one request of a client creates, in all its topics.",
        minimum=1,
    ),
    Setting(
        "topic.partitions.max",
        SettingType.INT,
        10_000,
        "Maximum number of partitions of a topic. ZooKeeper has all of them in one znode of at most 1 MB.",
        minimum=1,
    ),
    Setting(
        "broker.partitions.max",
        SettingType.INT,
        10_000,
        "Maximum number of replicas of partitions per broker, on average over all live brokers. Above it no "
        "partitions are created.",
        minimum=1,
    ),
)

LEADERSHIP: tuple[Setting, ...] = (
    Setting(
        "auto.leader.rebalance.enable",
        SettingType.BOOLEAN,
        True,
        "Whether the controller regularly moves leadership back to preferred leaders, the first replicas.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        SettingType.LONG,
        300,
        "Time in seconds between two checks by the controller of how many partitions are not led by their "
        "preferred leaders.",
        minimum=1,
    ),
    Setting(
        "leader.imbalance.per.broker.percentage",
        SettingType.INT,
        10,
        "Maximum percentage of a broker's preferred partitions that other brokers lead. Above it the "
        "controller moves leadership back to the preferred leaders.",
        minimum=0,
        dynamic=True,
    ),
)

REQUESTS: tuple[Setting, ...] = (
    Setting(
        "fetch.max.bytes",
        SettingType.INT,
        55 * 1024 * 1024,
        "Maximum bytes of records in one fetch response, even if the request allows more. A larger first "
        "batch is still returned.",
        minimum=1024,
    ),
    Setting(
        "delete.records.purgatory.timeout.ms",
        SettingType.INT,
        30_000,
        "Maximum time in ms a DeleteRecords request waits for the followers, even if its timeout is longer.",
        minimum=1,
    ),
    Setting(
        "request.timeout.ms",
        SettingType.INT,
        30_000,
        "Maximum time in ms this broker waits for another broker's response, except to replication fetches.",
        minimum=1,
    ),
)

STOPPING: tuple[Setting, ...] = (
    Setting(
        "controlled.shutdown.enable",
        SettingType.BOOLEAN,
        True,
        "Whether a stopping broker first asks the controller to move the leadership of its partitions to "
        "other brokers.",
    ),
    Setting(
        "controlled.shutdown.max.retries",
        SettingType.INT,
        3,
        "Number of times that a stopping broker repeats a failed request to move leadership. It then stops "
        "anyway.",
        minimum=0,
    ),
    Setting(
        "controlled.shutdown.retry.backoff.ms",
        SettingType.LONG,
        5_000,
        "Delay in ms between two requests of a stopping broker to move leadership.",
        minimum=0,
    ),
    Setting(
        "controlled.shutdown.catch.up.ms",
        SettingType.LONG,
        5_000,
        "Maximum time in ms that a stopping broker waits, before each request to move its leadership, for "
        "the in-sync followers to copy all records that it has acknowledged. It refuses writes with acks=1 "
        "meanwhile.",
        minimum=0,
    ),
)

WORKERS: tuple[Setting, ...] = (
    Setting(
        "background.threads",
        SettingType.INT,
        10,
        "Number of worker threads for fsync, recovery, and reads of data outside the page cache.",
        minimum=1,
    ),
)

BROKER_ROWS: tuple[Setting, ...] = IDENTITY + ZOOKEEPER + TOPICS + LEADERSHIP + REQUESTS + STOPPING + WORKERS
"""The rows declared here, in the order in which the documentation lists them."""

ROWS: tuple[Setting, ...] = (
    BROKER_ROWS
    + NETWORK_SETTINGS
    + TLS_SETTINGS
    + ZOOKEEPER_TLS_SETTINGS
    + sasl.SETTINGS
    + LOG_SETTINGS
    + CLEANING_SETTINGS
    + REPLICATION_SETTINGS
    + groups.SETTINGS
    + transactions.SETTINGS
    + ownership.SETTINGS
    + quotas.SETTINGS
    + AUTHORIZER_SETTINGS
    + METRICS_SETTINGS
)
"""Every row of server.properties."""


def broker_settings(values: Mapping[str, Any]) -> Settings:
    """Check the given keys and values as the broker's settings. Raises `SettingError`."""
    settings = Settings(ROWS, values)
    listeners = settings["listeners"]
    of_listeners = (*listener_settings(listeners), *tls_settings_of(settings), *sasl.listener_rows(listeners))
    settings = Settings((*ROWS, *of_listeners), values)
    if settings["broker.id"] > settings["reserved.broker.max.id"]:
        raise SettingError(
            f"broker.id={settings['broker.id']} is not allowed: expected a whole number from -1 to "
            f"{settings['reserved.broker.max.id']} (reserved.broker.max.id)"
        )
    if settings["replica.socket.timeout.ms"] < settings["replica.fetch.wait.max.ms"]:
        raise SettingError(
            f"replica.socket.timeout.ms={settings['replica.socket.timeout.ms']} is not allowed: expected at "
            f"least {settings['replica.fetch.wait.max.ms']} (replica.fetch.wait.max.ms)"
        )
    groups.check(settings)
    return settings


def settings_page() -> str:
    """The text of docs/settings.md, generated from the rows of all settings."""
    parts = [
        "# Settings",
        "",
        "Generated by `python -m holdfast_log.broker.settings.rows`. Names are Kafka's; defaults are Kafka's "
        "unless there is a reason for another.",
        "",
        "A broker takes its settings from its properties file (`config/server.properties`) and from "
        "`--override key=value`. It logs a warning for an unknown key, and does not start with an invalid "
        "value. A setting with yes in the column Dynamic can also be altered while brokers run, for one "
        "broker or for all: `scripts/configs.sh --entity-type brokers`.",
        "",
        "In a properties file, and in `--override`, a value or a part of it can be kept elsewhere: "
        "`${file:PATH:KEY}` is a key of another properties file, `${directory:PATH:FILE}` the content of a "
        "file, `${env:NAME}` a variable of the environment. It is read once, at the start. A program does "
        "not start if it is missing, and no error shows it. Clients do the same with properties files, not "
        "with properties that an application passes as a mapping, and brokers not with values that clients "
        "alter.",
        "",
    ]
    for title, rows in (
        ("Broker", BROKER_ROWS),
        ("Broker: network", NETWORK_SETTINGS),
        ("Broker: TLS", TLS_SETTINGS),
        ("Broker: TLS with ZooKeeper", ZOOKEEPER_TLS_SETTINGS),
        ("Broker: SASL", sasl.SETTINGS),
        ("Broker: logs", LOG_SETTINGS),
        ("Broker: compaction", CLEANING_SETTINGS),
        ("Broker: replication", REPLICATION_SETTINGS),
        ("Broker: groups", groups.SETTINGS),
        ("Broker: transactions", transactions.SETTINGS),
        ("Broker: ownership", ownership.SETTINGS),
        ("Broker: quotas", quotas.SETTINGS),
        ("Broker: access control lists", AUTHORIZER_SETTINGS),
        ("Broker: metrics", METRICS_SETTINGS),
        ("Topics", TOPIC_SETTINGS),
        ("Producer", PRODUCER_ROWS),
        ("Consumer", CONSUMER_ROWS),
        ("Admin client", ADMIN_ROWS),
    ):
        parts += [f"## {title}", "", settings_table(rows, show_dynamic=title.startswith("Broker"))]
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
