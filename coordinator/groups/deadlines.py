"""The deadlines of a shard's groups: the keys under which they are set in its `Timers`."""

from __future__ import annotations

import enum
from typing import NamedTuple


class TimerKind(enum.Enum):
    """What happens when a deadline passes."""

    SESSION = "the member is removed: it has sent no heartbeat"
    PENDING = "the member id is forgotten: no member has joined with it"
    JOIN = "the join phase ends without the members that have not joined; in a consumer group one member"
    SYNC = "members that have not sent SyncGroup are removed; in a consumer group one member"
    REVOKE = "the member is removed: it has not given up partitions in its rebalance timeout"
    UNUSED = "the ephemeral group is deleted: no consumer has registered"


class TimerKey(NamedTuple):
    """One deadline of a group, or of one of its members."""

    group_id: str
    kind: TimerKind
    member_id: str = ""
