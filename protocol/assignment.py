"""The strategies by which the coordinator of a managed group assigns partitions to members."""

from __future__ import annotations

import enum


class AssignmentStrategy(enum.StrEnum):
    """A strategy by its name in CreateGroup, and in the setting group.remote.assignor."""

    RANGE = "range"
    ROUND_ROBIN = "roundrobin"
    STICKY = "sticky"
