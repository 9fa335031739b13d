"""scripts/reassign-partitions.sh: move partitions to other brokers and directories, and show progress."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from holdfast_log.clients.admin import Admin, Reassignment
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    explained,
    json_option,
    print_json,
    properties,
    run,
)
from holdfast_log.clients.tools.partitions_file import (
    ReassignmentFile,
    assignments_json,
    joined,
    read_reassignment,
    read_topics,
)
from holdfast_log.clients.tools.replica_directories import (
    DirectoryState,
    cancel_moves,
    check_brokers,
    choose,
    find_progress,
    places,
    start_moves,
)
from holdfast_log.clients.tools.replica_plan import NotEnoughBrokers, plan
from holdfast_log.clients.tools.replication_throttle import (
    clear_directory_rate,
    clear_throttle,
    set_directory_rate,
    set_throttle,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

_PATIENCE_MS = 30_000
_START_MS = 10_000


@click.command("reassign-partitions", context_settings=CONTEXT)
@bootstrap_option
@click.option(
    "--generate", "action", flag_value="generate", help="Generate a reassignment plan without executing it."
)
@click.option("--execute", "action", flag_value="execute", help="Execute the reassignment.")
@click.option(
    "--verify", "action", flag_value="verify", help="Verify whether the reassignment has completed."
)
@click.option("--cancel", "action", flag_value="cancel", help="Cancel an active reassignment.")
@click.option("--list", "action", flag_value="list", help="List all active reassignments.")
@click.option(
    "--reassignment-json-file",
    "path",
    metavar="FILE",
    help='The new replicas: {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], '
    '"log_dirs": ["any", "/data/2"]}]}; log_dirs may be left out.',
)
@click.option(
    "--topics-to-move-json-file",
    "topics_path",
    metavar="FILE",
    help='For --generate: {"topics": [{"topic": "t"}]}',
)
@click.option(
    "--broker-list", metavar="1,2,3", help="With --generate: brokers to which partitions are assigned."
)
@click.option("--disable-rack-aware", is_flag=True, help="With --generate: ignore racks.")
@click.option(
    "--additional", is_flag=True, help="With --execute: allow it while other reassignments are active."
)
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="With --execute: maximum rate of the moves at each broker, in bytes per second. "
    "With --additional, it also changes the rate of the active moves.",
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    "directory_throttle",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="With --execute: maximum rate at which each broker copies replicas between its log directories, in "
    "bytes per second.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(min=0),
    default=_START_MS,
    show_default=True,
    metavar="MS",
    help="With --execute: maximum time in ms until moves to log directories have begun.",
)
@click.option(
    "--preserve-throttles", is_flag=True, help="With --verify and --cancel: do not change the throttle."
)
@json_option
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the admin client.")
def reassign_partitions(
    bootstrap: str,
    action: str | None,
    path: str | None,
    topics_path: str | None,
    broker_list: str | None,
    disable_rack_aware: bool,
    additional: bool,
    throttle: int | None,
    directory_throttle: int | None,
    timeout_ms: int,
    preserve_throttles: bool,
    as_json: bool,
    command_config: str | None,
) -> int:
    """Move partitions to other brokers, and to other log directories of theirs: generate a plan, execute it,
    verify its progress.

    \b
    reassign-partitions.sh --bootstrap-server localhost:9092 --generate \\
        --topics-to-move-json-file topics.json --broker-list 1,2,3
    reassign-partitions.sh --bootstrap-server localhost:9092 --execute \\
        --reassignment-json-file plan.json --throttle 50000000
    reassign-partitions.sh --bootstrap-server localhost:9092 --verify \\
        --reassignment-json-file plan.json

    A plan may name the log directory of each replica in "log_dirs"; "any" leaves it to the broker. A throttle
    lasts until --verify finds all moves completed, or --cancel ends them.
    """
    if action is None:
        raise click.UsageError("one of --generate, --execute, --verify, --cancel, --list is needed")
    if as_json and action not in ("list", "verify"):
        raise click.UsageError("--json goes with --list and --verify")
    if action == "generate" and (topics_path is None or broker_list is None):
        raise click.UsageError("--generate needs --topics-to-move-json-file and --broker-list")
    if action in ("execute", "verify", "cancel") and path is None:
        raise click.UsageError(f"--{action} needs --reassignment-json-file")
    plan_file = read_reassignment(path) if path is not None else ReassignmentFile()
    defaults = {
        "default.api.timeout.ms": _PATIENCE_MS,
        "client.id": "reassign-partitions",
        "bootstrap.timeout.ms": FIRST_CONTACT_MS,
    }
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        match action:
            case "generate":
                topics = read_topics(topics_path or "")
                return generate(admin, topics, _brokers(broker_list or ""), rack_aware=not disable_rack_aware)
            case "execute":
                limits = MoveLimits(throttle, directory_throttle, timeout_ms)
                return execute(admin, plan_file, limits, additional=additional)
            case "verify":
                return verify(admin, plan_file, clears=not preserve_throttles, as_json=as_json)
            case "cancel":
                return cancel(admin, plan_file, clears=not preserve_throttles)
            case _:
                return show_running(admin, as_json=as_json)


def generate(admin: Admin, topics: Sequence[str], brokers: Sequence[int], *, rack_aware: bool) -> int:
    """Print the current replicas of the topics' partitions and a proposal for the brokers listed."""
    current = _current(admin, topics)
    nodes = {node.id: node.rack for node in admin.describe_cluster().nodes}
    missing = [broker for broker in brokers if broker not in nodes]
    if missing:
        raise click.UsageError(f"broker {missing[0]} of --broker-list does not exist or is down")
    try:
        proposed = plan(current, {broker: nodes[broker] if rack_aware else None for broker in brokers})
    except NotEnoughBrokers as error:
        raise click.UsageError(str(error)) from None
    click.echo(f"Current partition replica assignment\n{assignments_json(current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{assignments_json(proposed)}")
    return 0


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """How fast replicas may be copied, in bytes per second and broker; None: as now. `start_ms` is how long
    to wait until moves to log directories have begun."""

    between_brokers: int | None = None
    between_directories: int | None = None
    start_ms: int = _START_MS


def execute(admin: Admin, plan_file: ReassignmentFile, limits: MoveLimits, *, additional: bool) -> int:
    """Start the moves, and return the exit status."""
    targets, directories = plan_file.replicas, plan_file.directories
    running = admin.list_partition_reassignments()
    if running and not additional:
        click.echo(
            f"Error: these partitions are being moved: {joined(running)}\n"
            "Give --additional to start the new moves anyway, or stop active ones with --cancel.",
            err=True,
        )
        return 1
    if directories:
        check_brokers(admin, directories)
    current = _current(admin, dict.fromkeys(topic for topic, _ in targets))
    before = {partition: current[partition] for partition in targets if partition in current}
    click.echo(f"Current partition replica assignment\n\n{assignments_json(before)}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    _set_limits(admin, plan_file, limits, before, running)
    # A replica that a broker does not have yet is created where it is to be, and not moved there afterwards.
    new = {
        replica: path
        for replica, path in directories.items()
        if replica.broker not in current.get(replica.partition, ())
    }
    if new and choose(admin, new):
        return 1
    status = _report(
        admin.alter_partition_reassignments(targets), "Successfully started partition reassignments for"
    )
    if directories and not status:
        status = start_moves(admin, directories, limits.start_ms)
    return status


def _set_limits(
    admin: Admin,
    plan_file: ReassignmentFile,
    limits: MoveLimits,
    before: Mapping[TopicPartition, Sequence[int]],
    running: Mapping[TopicPartition, Reassignment],
) -> None:
    if limits.between_brokers is not None:
        # Set before the moves start. Active moves are included, because this replaces the topics' lists.
        going = {partition: move.replicas for partition, move in running.items()}
        staying = {
            partition: [broker for broker in move.replicas if broker not in move.adding]
            for partition, move in running.items()
        }
        set_throttle(admin, {**before, **staying}, {**going, **plan_file.replicas}, limits.between_brokers)
        click.echo(f"The inter-broker throttle limit was set to {limits.between_brokers} B/s")
    if limits.between_directories is not None:
        brokers = {replica.broker for replica in plan_file.directories}
        set_directory_rate(admin, brokers, limits.between_directories)
        click.echo(f"The replica-alter-dir throttle limit was set to {limits.between_directories} B/s")


def verify(admin: Admin, plan_file: ReassignmentFile, *, clears: bool = True, as_json: bool = False) -> int:
    """Print the progress of moves, and return the exit status: 0 once all are completed.

    With `clears`, the throttle is removed once none of the moves is active.
    """
    targets = plan_file.replicas
    running = admin.list_partition_reassignments(targets)
    current = _current(admin, dict.fromkeys(topic for topic, _ in targets))
    rows = [
        _state_of(partition, target, current.get(partition), partition in running)
        for partition, target in sorted(targets.items())
    ]
    moves = find_progress(admin, plan_file.directories, running)
    if as_json:
        print_json(
            [
                {
                    "topic": topic,
                    "partition": number,
                    "state": state,
                    "replicas": now and list(now),
                    "log_dirs": [
                        {"broker": each.replica.broker, "log_dir": each.target, "state": each.state.value}
                        for each in moves
                        if each.replica.partition == (topic, number)
                    ],
                }
                for (topic, number), now, state, _ in rows
            ]
        )
    else:
        click.echo("Status of partition reassignment:")
        for sentence in (*(row[3] for row in rows), *(each.sentence for each in moves)):
            click.echo(sentence)
    is_moving = any(each.now.future is not None for each in moves)
    if clears and not running and not is_moving:
        # Standard output is one JSON document.
        _clear(admin, plan_file, set(current), to_errors=as_json)
    are_completed = all(each.state is DirectoryState.COMPLETED for each in moves)
    return int(any(state != "completed" for _, _, state, _ in rows) or not are_completed)


def _state_of(
    partition: TopicPartition, target: Sequence[int], now: tuple[int, ...] | None, is_running: bool
) -> tuple[TopicPartition, tuple[int, ...] | None, str, str]:
    """A partition, its replicas now, the state of its move as --json names it, and the sentence about it."""
    if is_running:
        return partition, now, "in progress", f"Reassignment of partition {partition} is still in progress."
    if now is None:
        return partition, now, "no such partition", f"There is no partition {partition}."
    if tuple(now) == tuple(target):
        return partition, now, "completed", f"Reassignment of partition {partition} is completed."
    sentence = (
        f"There is no active reassignment of partition {partition}, but replica set is "
        f"{_numbers(now)} rather than {_numbers(target)}."
    )
    return partition, now, "not active", sentence


def cancel(admin: Admin, plan_file: ReassignmentFile, *, clears: bool = True) -> int:
    """Cancel the moves that are still active, and return the exit status."""
    results = admin.alter_partition_reassignments(dict.fromkeys(plan_file.replicas))
    running = {
        partition: error
        for partition, error in results.items()
        if error is None or error.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    }
    moves = cancel_moves(admin, plan_file.directories)
    if not running and moves is None:
        click.echo("None of the specified partition moves are active.")
        return 0
    status = moves or 0
    if running:
        status |= _report(running, "Successfully cancelled partition reassignments for")
    if clears and not status:
        _clear(admin, plan_file, set(plan_file.replicas))
    return status


def _clear(
    admin: Admin, plan_file: ReassignmentFile, there: Container[TopicPartition], *, to_errors: bool = False
) -> None:
    """Remove the limits of moves that have ended, where no other move needs them. `there` are partitions of
    topics that exist."""
    cleared: list[str] = []
    brokers = {replica.broker for replica in plan_file.directories}
    if brokers and not any(place.future for place in places(admin, brokers).values()):
        cleared += clear_directory_rate(admin, brokers)
    topics = dict.fromkeys(topic for topic, _ in plan_file.replicas if TopicPartition(topic, 0) in there)
    if not admin.list_partition_reassignments():
        # The brokers' rates apply to all moves.
        cleared += clear_throttle(admin, topics)
    for each in dict.fromkeys(cleared):
        click.echo(f"Cleared the throttle of {each}.", err=to_errors)


def show_running(admin: Admin, *, as_json: bool = False) -> int:
    """Print all active moves, and return the exit status."""
    running = admin.list_partition_reassignments()
    if as_json:
        print_json(
            [
                {
                    "topic": topic,
                    "partition": number,
                    "replicas": list(move.replicas),
                    "adding": list(move.adding),
                    "removing": list(move.removing),
                }
                for (topic, number), move in sorted(running.items())
            ]
        )
        return 0
    if not running:
        click.echo("No partition reassignments found.")
        return 0
    click.echo("Current partition reassignments:")
    for partition, move in sorted(running.items()):
        line = f"{partition}: replicas: {_numbers(move.replicas)}."
        if move.adding:
            line += f" adding: {_numbers(move.adding)}."
        if move.removing:
            line += f" removing: {_numbers(move.removing)}."
        click.echo(line)
    return 0


def _report(results: Mapping[TopicPartition, BrokerError | None], success: str) -> int:
    done = [partition for partition, error in results.items() if error is None]
    if done:
        click.echo(f"{success} {joined(done)}")
    for partition, error in sorted(results.items()):
        if error is not None:
            click.echo(f"Error: {partition}: {explained(error)}", err=True)
    return int(len(done) < len(results))


def _current(admin: Admin, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(topic.name, row.partition): row.replicas
        for topic in admin.describe_topics(topics)
        for row in topic.partitions
    }


def _brokers(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(each) for each in text.split(",")))
    except ValueError:
        raise click.UsageError(f"--broker-list {text!r} is not of the form 1,2,3") from None


def _numbers(brokers: Iterable[int]) -> str:
    return ",".join(str(broker) for broker in brokers)


if __name__ == "__main__":
    run(reassign_partitions)
