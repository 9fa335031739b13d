"""Every setting of the broker, one row each: its own, the network's and the log's.

`python -m broker.settings.rows` prints the settings of broker, topics, producer, consumer and admin client as
Markdown: that is docs/settings.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from broker.groups import settings as groups
from broker.log.settings import BROKER_SETTINGS as LOG_SETTINGS
from broker.log.settings import TOPIC_SETTINGS
from broker.network.settings import SETTINGS as NETWORK_SETTINGS
from broker.ownership import settings as ownership
from broker.replication.settings import SETTINGS as REPLICATION_SETTINGS
from clients.config import ADMIN_ROWS, CONSUMER_ROWS, PRODUCER_ROWS
from clients.settings import REQUIRED, Setting, SettingError, Settings, SettingType, settings_table

_MAX_PORTABLE_ID = 2**31 - 1


_ZOOKEEPER_SERVER = re.compile(r"([^\s:/,@\[\]]+|\[[0-9a-fA-F:.%]+\])(:(?P<port>\d{1,5}))?")
_CHROOT = re.compile(r"(/[^/\s]+)*/?")


def _zookeeper_servers(value: Any) -> None:
    """What ZooKeeper's own clients take."""
    servers, slash, path = str(value).partition("/")
    for server in servers.split(","):
        matched = _ZOOKEEPER_SERVER.fullmatch(server.strip())
        if matched is None or not 1 <= int(matched["port"] or 2181) <= 65535:
            raise ValueError(
                "at least one host:port, comma-separated, with an optional /chroot at the end of all"
            )
    if not _CHROOT.fullmatch(slash + path) or {".", ".."} & set(path.split("/")):
        raise ValueError(f"a path of names after the servers, not {slash + path}")


IDENTITY: tuple[Setting, ...] = (
    Setting(
        "broker.id",
        SettingType.INT,
        -1,
        "This broker's number in the cluster. -1 takes the next free one from ZooKeeper, above "
        "`reserved.broker.max.id`, and keeps it in the log directories.",
        minimum=-1,
        maximum=_MAX_PORTABLE_ID,
    ),
    Setting(
        "reserved.broker.max.id",
        SettingType.INT,
        1000,
        "The highest number that `broker.id` may be set to by hand; generated ones are higher.",
        minimum=0,
    ),
    Setting(
        "broker.rack",
        SettingType.STRING,
        None,
        "Where this broker stands: replicas of a partition are spread over the racks.",
    ),
)

ZOOKEEPER: tuple[Setting, ...] = (
    Setting(
        "zookeeper.connect",
        SettingType.STRING,
        REQUIRED,
        "ZooKeeper's servers as host:port, comma-separated, with an optional /chroot at the end under which "
        "all of this cluster's data lives.",
        check=_zookeeper_servers,
    ),
    Setting(
        "zookeeper.connection.timeout.ms",
        SettingType.INT,
        None,
        "How long the start waits for ZooKeeper. Unset: as long as `zookeeper.session.timeout.ms`.",
        minimum=1,
    ),
    Setting(
        "zookeeper.session.timeout.ms",
        SettingType.INT,
        18_000,
        "A broker of which ZooKeeper has not heard for so long is taken for dead.",
        minimum=1,
    ),
)

TOPICS: tuple[Setting, ...] = (
    Setting(
        "num.partitions",
        SettingType.INT,
        1,
        "How many partitions a topic gets that is created without a number.",
        minimum=1,
    ),
    Setting(
        "default.replication.factor",
        SettingType.INT,
        1,
        "How many replicas a topic gets that is created without a number.",
        minimum=1,
    ),
    Setting(
        "auto.create.topics.enable",
        SettingType.BOOLEAN,
        True,
        "Whether asking for the metadata of a topic that is not there creates it.",
    ),
    Setting(
        "delete.topic.enable",
        SettingType.BOOLEAN,
        True,
        "Whether topics may be deleted. false refuses it, with TOPIC_DELETION_DISABLED.",
    ),
)

LEADERSHIP: tuple[Setting, ...] = (
    Setting(
        "auto.leader.rebalance.enable",
        SettingType.BOOLEAN,
        True,
        "Whether the controller gives leadership back to preferred leaders (the first replicas) by itself.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        SettingType.LONG,
        300,
        "How often, in seconds, the controller looks whether leadership has drifted.",
        minimum=1,
    ),
    Setting(
        "leader.imbalance.per.broker.percentage",
        SettingType.INT,
        10,
        "Of the partitions that prefer a broker, the percentage that others may lead before they are given "
        "back.",
        minimum=0,
        dynamic=True,
    ),
)

REQUESTS: tuple[Setting, ...] = (
    Setting(
        "fetch.max.bytes",
        SettingType.INT,
        55 * 1024 * 1024,
        "The most bytes of records that one fetch is answered with, whatever it asks for.",
        minimum=1024,
    ),
    Setting(
        "delete.records.purgatory.timeout.ms",
        SettingType.INT,
        30_000,
        "The longest that a DeleteRecords request waits for the followers, whatever it asks for.",
        minimum=1,
    ),
    Setting(
        "request.timeout.ms",
        SettingType.INT,
        30_000,
        "How long this broker waits for another broker's answer.",
        minimum=1,
    ),
)

STOPPING: tuple[Setting, ...] = (
    Setting(
        "controlled.shutdown.enable",
        SettingType.BOOLEAN,
        True,
        "Whether a broker that stops first has the controller move its leaderships away.",
    ),
    Setting(
        "controlled.shutdown.max.retries",
        SettingType.INT,
        3,
        "How often the move is tried before the broker stops without it.",
        minimum=0,
    ),
    Setting(
        "controlled.shutdown.retry.backoff.ms",
        SettingType.LONG,
        5_000,
        "How long the broker pauses between those tries.",
        minimum=0,
    ),
)

WORKERS: tuple[Setting, ...] = (
    Setting(
        "background.threads",
        SettingType.INT,
        10,
        "How many worker threads do what would hold up the reactor: fsync, recovery, reads of cold data.",
        minimum=1,
    ),
)

BROKER_ROWS: tuple[Setting, ...] = IDENTITY + ZOOKEEPER + TOPICS + LEADERSHIP + REQUESTS + STOPPING + WORKERS
"""The rows declared here, in the order in which the documentation lists them."""

ROWS: tuple[Setting, ...] = (
    BROKER_ROWS
    + NETWORK_SETTINGS
    + LOG_SETTINGS
    + REPLICATION_SETTINGS
    + groups.SETTINGS
    + ownership.SETTINGS
)
"""Every row of server.properties."""


def broker_settings(values: Mapping[str, Any]) -> Settings:
    """The broker's settings of the given keys and values. Raises `SettingError`."""
    settings = Settings(ROWS, values)
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
    """docs/settings.md: every setting there is, from its row."""
    parts = [
        "# Settings",
        "",
        "Generated by `python -m broker.settings.rows`. Names, and defaults unless there is reason, are "
        "Kafka's.",
        "",
        "A broker takes its settings from its properties file (`config/server.properties`) and from "
        "`--override key=value`. A key that is not listed here is named in a warning at the start; a value "
        "that is not allowed stops the start. Those whose column Dynamic says yes can also be altered while "
        "brokers run, for one of them or for all: `scripts/configs.sh --entity-type brokers`.",
        "",
        "This version neither deletes old segments nor compacts them: the settings of retention and of "
        "cleaning are taken and kept, and nothing acts on them yet.",
        "",
    ]
    for title, rows in (
        ("Broker", BROKER_ROWS),
        ("Broker: network", NETWORK_SETTINGS),
        ("Broker: logs", LOG_SETTINGS),
        ("Broker: replication", REPLICATION_SETTINGS),
        ("Broker: groups", groups.SETTINGS),
        ("Broker: ownership", ownership.SETTINGS),
        ("Topics", TOPIC_SETTINGS),
        ("Producer", PRODUCER_ROWS),
        ("Consumer", CONSUMER_ROWS),
        ("Admin client", ADMIN_ROWS),
    ):
        parts += [f"## {title}", "", settings_table(rows, show_dynamic=title.startswith("Broker"))]
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
