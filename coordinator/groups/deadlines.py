"""The deadlines of a shard's groups: the keys under which they are set in its `Timers`."""

from __future__ import annotations

import enum
from typing import NamedTuple


class TimerKind(enum.Enum):
    """What a deadline is for."""

    SESSION = "the member is gone unless it heartbeats"
    PENDING = "the member id was given out and not taken up"
    ROUND = "the round ends without those who have not joined"
    SYNC = "those who have not asked for their assignment are gone"
    UNUSED = "the ephemeral group goes unless somebody registers"


class TimerKey(NamedTuple):
    group_id: str
    kind: TimerKind
    member_id: str = ""
