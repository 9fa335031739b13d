"""The cells of the matrix: who is struck, how, and whether batches are compressed.

The roles and faults are those of Kafka's system tests of replication. The 31st cell kills the leader and the
controller in the same moment, which leaves one replica of three. Cells of ZooKeeper's faults come after them.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass


class Role(enum.Enum):
    """Which broker is struck: found anew for each stroke, since leaders and controllers change."""

    LEADER = "leader"
    """The one that leads, and is not the controller to begin with."""
    CONTROLLER = "controller"
    """The controller, which leads nothing to begin with."""
    FOLLOWER = "follower"
    """One that is neither."""
    LEADER_AND_CONTROLLER = "leader-and-controller"
    """Both of them, at once."""
    ZOOKEEPER = "zookeeper"


class Fault(enum.Enum):
    """What happens to it."""

    CLEAN_STOP = "clean-stop"
    KILL = "kill"
    PAUSE = "pause"
    BOUNCE = "bounce"
    CUT = "cut"
    RESTART = "restart"
    LEADER_CHANGE = "leader-change"
    OUTAGE = "outage"


@dataclass(frozen=True, slots=True)
class Cell:
    """One run."""

    role: Role
    fault: Fault
    is_compressed: bool

    @property
    def name(self) -> str:
        return f"{self.role.value}/{self.fault.value}/{'compressed' if self.is_compressed else 'plain'}"


_ROLES = (Role.LEADER, Role.CONTROLLER, Role.FOLLOWER)
_FAULTS = (Fault.CLEAN_STOP, Fault.KILL, Fault.PAUSE, Fault.BOUNCE, Fault.CUT)

CELLS = (
    *(Cell(*combination) for combination in itertools.product(_ROLES, _FAULTS, (False, True))),
    Cell(Role.LEADER_AND_CONTROLLER, Fault.KILL, True),
)
ZOOKEEPER_CELLS = tuple(
    Cell(Role.ZOOKEEPER, fault, False)
    for fault in (Fault.RESTART, Fault.PAUSE, Fault.LEADER_CHANGE, Fault.OUTAGE)
)


def named(name: str) -> Cell:
    """The cell of that name. Raises KeyError."""
    return {cell.name: cell for cell in (*CELLS, *ZOOKEEPER_CELLS)}[name]
