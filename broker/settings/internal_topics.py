"""Which settings clients may give the topics in which brokers keep their own state. Pure.

Brokers have no access control: any client may alter settings. Of an internal topic only the
settings listed here may differ from the broker's, within bounds with which brokers can still write to the
topic, compact it and load it. In Kafka without an authorizer all of them may be altered.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_log.clients.settings import SettingError

MESSAGE_BYTES_MIN = 1 << 20
"""Minimum of max.message.bytes of an internal topic: a group's record must fit in one batch."""
DIRTY_RATIO_MAX = 0.9
"""Maximum of min.cleanable.dirty.ratio of an internal topic: with 1 it would never be compacted."""
COMPACTION_LAG_MS_MIN = 60_000
"""Minimum of max.compaction.lag.ms of an internal topic: each time, it starts a segment and is compacted."""

ALTERABLE = frozenset(
    {
        "cleanup.policy",
        "compression.type",
        "flush.before.ack",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "min.cleanable.dirty.ratio",
        "min.insync.replicas",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "unclean.leader.election.enable",
    }
)
"""The settings of an internal topic that clients may alter. The retention settings have no effect on it."""


def check_internal_topic(
    topic: str, configs: Mapping[str, str | None], own: Mapping[str, str], replicas: int | None
) -> None:
    """Raises `SettingError` for settings with which the brokers would lose what they keep in an internal
    topic, or could not write to it. `own` are its present settings, which may stay; `replicas` is the number
    that each of its partitions has at least, None if that is not known."""
    policy = [item.strip() for item in (configs.get("cleanup.policy") or "").split(",")]
    if policy != ["compact"]:
        raise SettingError(
            f"the internal topic {topic} must have cleanup.policy=compact: with another, brokers lose the "
            "offsets of all groups"
        )
    for name, value in configs.items():
        if value is None or value == own.get(name):
            continue
        if name not in ALTERABLE:
            raise SettingError(
                f"{name} of the internal topic {topic} cannot be altered: brokers keep the state of groups "
                f"in it. Those that can: {', '.join(sorted(ALTERABLE))}"
            )
        _check_value(topic, name, value, replicas)


def check_enough_replicas(topic: str, min_in_sync: float, replicas: int) -> None:
    """Raises `SettingError` if an internal topic whose partitions have so many replicas would have the value
    `min_in_sync` of min.insync.replicas, its own or the brokers' default."""
    if min_in_sync > replicas:
        raise SettingError(
            f"min.insync.replicas of the internal topic {topic} is {min_in_sync:g} and must be at most "
            f"{replicas}, the number of its replicas: with more, brokers cannot store what groups commit"
        )


def _check_value(topic: str, name: str, value: str, replicas: int | None) -> None:
    bound = _BOUNDS.get(name)
    number = _number(value)
    if number is None:
        return  # Not a number: the check of the setting's type refuses what it must.
    if name == "min.insync.replicas" and replicas is not None:
        check_enough_replicas(topic, number, replicas)
    if bound is not None and not bound[0] <= number <= bound[1]:
        raise SettingError(
            f"{name} of the internal topic {topic} must be {bound[2]}: otherwise brokers cannot store what "
            "groups commit, or cannot remove what is outdated"
        )


_BOUNDS: Mapping[str, tuple[float, float, str]] = {
    "max.message.bytes": (MESSAGE_BYTES_MIN, float("inf"), f"at least {MESSAGE_BYTES_MIN}"),
    "min.cleanable.dirty.ratio": (0, DIRTY_RATIO_MAX, f"at most {DIRTY_RATIO_MAX}"),
    "max.compaction.lag.ms": (COMPACTION_LAG_MS_MIN, float("inf"), f"at least {COMPACTION_LAG_MS_MIN}"),
}


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
