"""The log directories that a reassignment names (KIP-113): replicas go there, from another broker or from
another directory of the same one."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import click

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.tools.partitions_file import PlacedReplica
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

_PAUSE_S = 0.1


class DirectoryState(Enum):
    """How far a replica is on its way to the directory that a plan names, as --json says it."""

    COMPLETED = "completed"
    MOVING = "in progress"
    MOVING_ELSEWHERE = "moving elsewhere"
    NOT_MOVING = "not active"
    MISSING = "no such replica"


@dataclass(frozen=True, slots=True)
class PlacedDirectory:
    """The directory of a replica now, and the one to which it moves; None if there is none."""

    current: str | None = None
    future: str | None = None


@dataclass(frozen=True, slots=True)
class DirectoryProgress:
    """A replica, the directory that the plan names, and how far it is on its way there."""

    replica: PlacedReplica
    target: str
    now: PlacedDirectory
    state: DirectoryState

    @property
    def sentence(self) -> str:
        broker, partition = self.replica
        match self.state:
            case DirectoryState.COMPLETED:
                return f"Reassignment of replica {self.replica} completed successfully."
            case DirectoryState.MOVING:
                return f"Reassignment of replica {self.replica} is still in progress."
            case DirectoryState.MOVING_ELSEWHERE:
                return (
                    f"Partition {partition} on broker {broker} is being moved to log dir {self.now.future} "
                    f"instead of {self.target}."
                )
            case DirectoryState.NOT_MOVING:
                return (
                    f"Partition {partition} on broker {broker} is not being moved from log dir "
                    f"{self.now.current} to {self.target}."
                )
            case DirectoryState.MISSING:
                return f"Partition {partition} cannot be found in any live log directory on broker {broker}."


def progress_of(
    replica: PlacedReplica, target: str, now: PlacedDirectory, *, is_reassigned: bool
) -> DirectoryProgress:
    """How far a replica is. `is_reassigned` says whether its partition is on its way between brokers."""
    if now.future is not None:
        state = DirectoryState.MOVING if now.future == target else DirectoryState.MOVING_ELSEWHERE
    elif now.current == target:
        state = DirectoryState.COMPLETED
    elif now.current is not None:
        state = DirectoryState.NOT_MOVING
    else:
        state = DirectoryState.MOVING if is_reassigned else DirectoryState.MISSING
    return DirectoryProgress(replica, target, now, state)


def find_progress(
    admin: Admin, targets: Mapping[PlacedReplica, str], reassigned: Collection[TopicPartition] = ()
) -> list[DirectoryProgress]:
    """How far each replica of a plan is, in order of brokers. `reassigned` are the partitions that are on
    their way between brokers."""
    if not targets:
        return []
    found = places(admin, {replica.broker for replica in targets})
    return [
        progress_of(
            replica,
            target,
            found.get(replica, PlacedDirectory()),
            is_reassigned=replica.partition in reassigned,
        )
        for replica, target in sorted(targets.items())
    ]


def places(admin: Admin, brokers: Iterable[int]) -> dict[PlacedReplica, PlacedDirectory]:
    """The directories of all replicas of these brokers. A broker that is down has none."""
    live = {node.id for node in admin.describe_cluster().nodes}
    current: dict[PlacedReplica, str] = {}
    future: dict[PlacedReplica, str] = {}
    for each in admin.describe_log_dirs(sorted(live & set(brokers))):
        for row in each.replicas:
            (future if row.is_future else current)[PlacedReplica(each.node, row.partition)] = each.path
    return {
        replica: PlacedDirectory(current.get(replica), future.get(replica)) for replica in current | future
    }


def check_brokers(admin: Admin, targets: Iterable[PlacedReplica]) -> None:
    """Raises click.UsageError if a broker for which a plan names directories is not there."""
    live = {node.id for node in admin.describe_cluster().nodes}
    for replica in targets:
        if replica.broker not in live:
            raise click.UsageError(
                f"broker {replica.broker}, of which the plan names a log directory, does not exist or is down"
            )


def choose(admin: Admin, targets: Mapping[PlacedReplica, str]) -> int:
    """Have brokers create replicas, which they do not have yet, in these directories. Returns the exit
    status: 1 if a broker refuses a directory."""
    return _report_refusals(_ask(admin, targets), targets)


def start_moves(admin: Admin, targets: Mapping[PlacedReplica, str], timeout_ms: int) -> int:
    """Have brokers move their replicas to these directories, and return the exit status. A replica that is
    still to be created is asked for again, for up to `timeout_ms`."""
    deadline_s = time.monotonic() + timeout_ms / 1000
    left = dict(targets)
    status = 0
    while True:
        answers = _ask(admin, left)
        for replica, error in answers.items():
            if error is None:
                click.echo(
                    f"Successfully started moving log directory to {left[replica]} for replica "
                    f"{replica.partition} with broker {replica.broker}"
                )
        status |= _report_refusals(answers, left)
        left = {replica: left[replica] for replica, error in answers.items() if _is_absent(error)}
        if not left:
            return status
        if time.monotonic() >= deadline_s:
            replicas = ",".join(map(str, sorted(left)))
            click.echo(
                f"Error: Timed out before log directory moves could be started for: {replicas}\n"
                "The replicas are not there yet. Execute the plan again with --additional once they are, or "
                "give a higher --timeout.",
                err=True,
            )
            return 1
        time.sleep(_PAUSE_S)


def cancel_moves(admin: Admin, targets: Mapping[PlacedReplica, str]) -> int | None:
    """Leave the replicas that are on their way to another directory in the one where they are. Returns the
    exit status, or None if no move is active."""
    moving = {
        each.replica: each.now.current
        for each in find_progress(admin, targets)
        if each.now.future is not None and each.now.current is not None
    }
    if not moving:
        return None
    answers = _ask(admin, moving)
    cancelled = sorted(replica for replica, error in answers.items() if error is None)
    if cancelled:
        click.echo(f"Successfully cancelled log directory moves for {','.join(map(str, cancelled))}")
    return _report_refusals(answers, moving)


def _ask(admin: Admin, targets: Mapping[PlacedReplica, str]) -> dict[PlacedReplica, BrokerError | None]:
    by_broker: dict[int, dict[TopicPartition, str]] = {}
    for (broker, partition), path in targets.items():
        by_broker.setdefault(broker, {})[partition] = path
    return {
        PlacedReplica(broker, partition): error
        for broker, paths in sorted(by_broker.items())
        for partition, error in admin.alter_replica_log_dirs(broker, paths).items()
    }


def _is_absent(error: BrokerError | None) -> bool:
    return error is not None and error.code == ErrorCode.REPLICA_NOT_AVAILABLE


def _report_refusals(
    answers: Mapping[PlacedReplica, BrokerError | None], targets: Mapping[PlacedReplica, str]
) -> int:
    refused = {
        replica: error for replica, error in answers.items() if error is not None and not _is_absent(error)
    }
    for replica, error in sorted(refused.items()):
        reason = error.message
        if error.code == ErrorCode.LOG_DIR_NOT_FOUND:
            reason = (
                "the broker has no such directory in log.dirs: scripts/log-dirs.sh lists those that it has"
            )
        click.echo(f"Error: {replica} to {targets[replica]}: {reason}", err=True)
    return int(bool(refused))
