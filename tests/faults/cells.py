"""The cells of the matrix: which process fails, how, and whether batches are compressed.

The roles and faults are those of Kafka's system tests of replication. The 31st cell kills the leader and the
controller at the same time, which leaves one replica of three. Then follow the cells of faults of a machine's
clock, disk, power supply and path to ZooKeeper, and those of ZooKeeper's own faults.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass


class Role(enum.Enum):
    """Which process fails. It is looked up before each fault, because leaders and controllers change."""

    LEADER = "leader"
    """The broker that leads the partitions; at first it is not the controller."""
    CONTROLLER = "controller"
    """The controller; at first it leads no partition."""
    FOLLOWER = "follower"
    """A broker that is neither leader nor controller."""
    LEADER_AND_CONTROLLER = "leader-and-controller"
    """The leader and the controller at the same time."""
    LAST_IN_SYNC = "last-in-sync"
    """The leader, after both followers have been killed and have left the in-sync set."""
    ALL = "all"
    """All three brokers at the same time."""
    ZOOKEEPER = "zookeeper"


class Fault(enum.Enum):
    """How the process fails."""

    CLEAN_STOP = "clean-stop"
    KILL = "kill"
    PAUSE = "pause"
    BOUNCE = "bounce"
    CUT = "cut"
    RESTART = "restart"
    LEADER_CHANGE = "leader-change"
    OUTAGE = "outage"
    ZOOKEEPER_CUT = "zookeeper-cut"
    CLOCK_STEP = "clock-step"
    DISK_FULL = "disk-full"
    EMPTY_DISK = "empty-disk"
    POWER_LOSS = "power-loss"
    POWER_LOSS_FLUSHED = "power-loss-flushed"
    """A power loss of brokers that have `flush.before.ack` set."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of role, fault and compression."""

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
MACHINE_CELLS = tuple(
    Cell(role, fault, False)
    for role, fault in (
        (Role.LEADER, Fault.ZOOKEEPER_CUT),
        (Role.CONTROLLER, Fault.ZOOKEEPER_CUT),
        (Role.LEADER, Fault.CLOCK_STEP),
        (Role.CONTROLLER, Fault.CLOCK_STEP),
        (Role.LEADER, Fault.DISK_FULL),
        (Role.LEADER, Fault.EMPTY_DISK),
        (Role.LAST_IN_SYNC, Fault.EMPTY_DISK),
        (Role.LEADER, Fault.POWER_LOSS),
        (Role.LAST_IN_SYNC, Fault.POWER_LOSS),
        (Role.LEADER, Fault.POWER_LOSS_FLUSHED),
        (Role.ALL, Fault.POWER_LOSS_FLUSHED),
    )
)
ZOOKEEPER_CELLS = tuple(
    Cell(Role.ZOOKEEPER, fault, False)
    for fault in (Fault.RESTART, Fault.PAUSE, Fault.LEADER_CHANGE, Fault.OUTAGE)
)

ALL_CELLS = (*CELLS, *MACHINE_CELLS, *ZOOKEEPER_CELLS)


def named(name: str) -> Cell:
    """The cell of that name. Raises KeyError if there is none."""
    return {cell.name: cell for cell in ALL_CELLS}[name]
