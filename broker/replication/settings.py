"""The settings of replication, one row each, and the dataclasses that group them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.clients.settings import Setting, SettingType

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY = "org.apache.kafka.common.replica.LeaderSelector"
"""Kafka's names of what chooses the replica that a consumer reads from."""

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "replica.selector.class",
        SettingType.STRING,
        LEADER_ONLY,
        "Kafka's name of what chooses the replica that a consumer reads from (KIP-392). "
        f"`{LEADER_ONLY}`: the leader. `{RACK_AWARE}`: a leader sends consumers to an "
        "in-sync follower in their `client.rack`, if its own `broker.rack` is another one. This holds for "
        "topics with `single.reader=off`: others may have exclusive readers, and are served by their "
        "leaders. Set it to the same in all brokers.",
        choices=(LEADER_ONLY, RACK_AWARE),
    ),
    Setting(
        "replica.lag.time.max.ms",
        SettingType.LONG,
        30_000,
        "Time in ms after which a leader removes a follower that has not caught up from the in-sync set.",
        minimum=1,
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        SettingType.LONG,
        5_000,
        "Time in ms between two writes of the high watermarks to disk.",
        minimum=1,
    ),
    Setting(
        "replica.socket.timeout.ms",
        SettingType.INT,
        30_000,
        "Maximum time in ms a follower waits for a fetch response; at least `replica.fetch.wait.max.ms`.",
        minimum=1,
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        SettingType.INT,
        500,
        "Maximum time in ms a follower's fetch waits at the leader for `replica.fetch.min.bytes`.",
        minimum=1,
    ),
    Setting(
        "replica.fetch.min.bytes",
        SettingType.INT,
        1,
        "Minimum bytes of a follower's fetch; the leader waits for them for `replica.fetch.wait.max.ms`.",
        minimum=1,
    ),
    Setting(
        "replica.fetch.max.bytes",
        SettingType.INT,
        1024 * 1024,
        "Maximum bytes of one partition in a follower's fetch. A larger first batch is still returned.",
        minimum=0,
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        SettingType.INT,
        10 * 1024 * 1024,
        "Maximum bytes of all partitions together in a follower's fetch. A larger first batch is still "
        "returned.",
        minimum=0,
    ),
    Setting(
        "replica.fetch.backoff.ms",
        SettingType.INT,
        1000,
        "Maximum delay in ms before a follower repeats a failed fetch.",
        minimum=0,
    ),
    Setting(
        "num.replica.fetchers",
        SettingType.INT,
        1,
        "Number of concurrent fetches of a follower from each leader, each on a connection of its own.",
        minimum=1,
    ),
    Setting(
        "leader.replication.throttled.rate",
        SettingType.LONG,
        2**63 - 1,
        "Maximum bytes per second that this broker, as leader, sends to out-of-sync replicas that topics "
        "list in `leader.replication.throttled.replicas`.",
        minimum=0,
        dynamic=True,
    ),
    Setting(
        "follower.replication.throttled.rate",
        SettingType.LONG,
        2**63 - 1,
        "Maximum bytes per second that this broker fetches for its out-of-sync replicas that topics list in "
        "`follower.replication.throttled.replicas`.",
        minimum=0,
        dynamic=True,
    ),
    Setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        SettingType.LONG,
        2**63 - 1,
        "Maximum bytes per second that this broker copies between its log directories, for all replicas that "
        "move to another one together (KIP-113). Set it above the rate at which the replica is written, or "
        "its move does not end. 0 stops the moves. The last 4 MiB of a replica, for which it takes no "
        "appends, are copied at once, and the next copy waits for as much longer.",
        minimum=0,
        dynamic=True,
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        SettingType.INT,
        1000,
        "Maximum number of fetch sessions (KIP-227) that this broker keeps. A reader without a session "
        "names all its partitions in every fetch. 0 disables sessions.",
        minimum=0,
    ),
    Setting(
        "max.incremental.fetch.session.cache.partitions",
        SettingType.INT,
        500_000,
        "Maximum number of partitions in all fetch sessions of this broker together.",
        minimum=0,
    ),
    Setting(
        "fetch.partitions.max",
        SettingType.INT,
        5_000,
        "Maximum number of partitions in one fetch of a consumer, or in its fetch session. The broker "
        "refuses a fetch of more with INVALID_REQUEST. A consumer that reads more partitions of one broker "
        "needs a higher value; other clients wait while the broker looks at all. Followers have no limit.",
        minimum=1,
    ),
    Setting(
        "waiting.requests.max",
        SettingType.INT,
        1_000_000,
        "Maximum number of requests of each kind that wait at this broker at once: fetches of consumers, "
        "fetches of followers, produces with acks=all, DeleteRecords. A further request does not wait: a "
        "fetch gets the available records, any other request REQUEST_TIMED_OUT.",
        minimum=1,
    ),
    Setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        SettingType.INT,
        100,
        "Maximum time in ms for which a leader asks a coordinator again to add a partition to a transaction, "
        "while the markers of the producer's last transaction are still being written. After it the producer "
        "itself has to send its batch again.",
        minimum=0,
    ),
    Setting(
        "add.partitions.to.txn.retry.backoff.ms",
        SettingType.INT,
        20,
        "Time in ms between two of these questions.",
        minimum=1,
    ),
)


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """The settings that the wiring of replication uses."""

    fetchers: Annotated[int, "num.replica.fetchers"]
    timeout_ms: Annotated[int, "replica.socket.timeout.ms"]


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class ThrottleRates:
    """Maximum bytes per second that this broker sends to, and fetches for, out-of-sync replicas, and that it
    copies for replicas that move to another of its directories."""

    leader: Annotated[int, "leader.replication.throttled.rate"]
    follower: Annotated[int, "follower.replication.throttled.rate"]
    moves_bytes: Annotated[int, "replica.alter.log.dirs.io.max.bytes.per.second"]
