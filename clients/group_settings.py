"""The properties of a consumer in a group: Kafka's names, types and defaults, one row each."""

from __future__ import annotations

from holdfast_log.clients.settings import Setting, SettingType

_STRING, _BOOLEAN, _INT, _LIST = (
    SettingType.STRING,
    SettingType.BOOLEAN,
    SettingType.INT,
    SettingType.LIST,
)

GROUP_ROWS = (
    Setting(
        "group.id", _STRING, None,
        "Consumer group, whose members divide topics among them and share committed offsets. Unset: the "
        "consumer reads all partitions of its topics.",
    ),
    Setting(
        "group.protocol", _STRING, "classic",
        "classic: Kafka's older protocol, in which a member assigns the partitions; stock consumers can take "
        "part. consumer: Kafka's newer one (KIP-848), in which the coordinator assigns them and a rebalance "
        "stops nobody whose partitions stay; stock consumers can take part. managed: the coordinator "
        "assigns them, and can rewind the group while it works.",
        choices=("classic", "consumer", "managed"),
    ),
    Setting(
        "group.instance.id", _STRING, None,
        "Name of a static member. After a restart within its session the member gets its partitions back "
        "without a rebalance.",
    ),
    Setting(
        "session.timeout.ms", _INT, 45_000,
        "Time in ms without a heartbeat after which the coordinator removes a member. With "
        "enable.heartbeat.thread=false the application must call poll() more often than this. With "
        "group.protocol=consumer the brokers' group.consumer.session.timeout.ms has that meaning, and this "
        "is how long poll() goes on returning records without an answer to heartbeats.",
        minimum=1,
    ),
    Setting(
        "heartbeat.interval.ms", _INT, 3_000,
        "Time in ms between two heartbeats of a member. Must be below session.timeout.ms, and should be "
        "at most a third of it. With group.protocol=consumer the coordinator tells members theirs.",
        minimum=1,
    ),
    Setting(
        "enable.heartbeat.thread", _BOOLEAN, True,
        "Whether a thread sends heartbeats while the application handles records. false: everything happens "
        "in poll() and other calls, in the thread that makes them.",
    ),
    Setting(
        "max.poll.interval.ms", _INT, 300_000,
        "Maximum time in ms between two calls of poll(), and that a rebalance waits for a member. After "
        "that the member leaves the group, its partitions are lost, and the next poll() joins again.",
        minimum=1,
    ),
    Setting(
        "partition.assignment.strategy", _LIST, ("range", "cooperative-sticky"),
        "Assignors of a classic group, by preference: range, roundrobin, sticky, cooperative-sticky, or "
        "module:class of your own. The group uses one that all members have. Members keep their "
        "partitions in a rebalance if all their assignors are cooperative.",
    ),
    Setting(
        "group.remote.assignor", _STRING, "",
        "Assignor that runs in the coordinator; empty for its default. In a managed group that this consumer "
        "creates: range, roundrobin or sticky. With group.protocol=consumer one of the brokers' "
        "group.consumer.assignors; the one that most members ask for is used.",
    ),
    Setting(
        "group.single.reader", _BOOLEAN, False,
        "Whether, in a managed group that this consumer creates, brokers let only the member that has a "
        "partition read it: a member that has lost a partition without noticing cannot read on. An "
        "existing group must have been created so.",
    ),
    Setting(
        "group.ephemeral", _BOOLEAN, False,
        "Whether a managed group that this consumer creates is deleted, with its offsets, when its last "
        "member leaves.",
    ),
    Setting(
        "enable.auto.commit", _BOOLEAN, True,
        "Whether poll() and close() commit the offsets of the records that earlier calls of poll() "
        "returned.",
    ),
    Setting(
        "auto.commit.interval.ms", _INT, 5_000,
        "Time in ms between two automatic commits by poll().",
        minimum=0,
    ),
)  # fmt: skip
