"""The command line: drive a cluster, record what every client was answered, and check it.

scripts/check-history.sh --seconds 180 --faults all
scripts/check-history.sh --check history.jsonl
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path

import click

from holdfast_log.broker.tools.broker_process import BrokerProcessError
from holdfast_log.checker.calls import from_lines
from holdfast_log.checker.clients.crew import CheckSettings
from holdfast_log.checker.cluster import BROKERS, checked_cluster
from holdfast_log.checker.faults import ALL, NONE, BrokerFault, FaultPlayer, parse_faults
from holdfast_log.checker.load import CheckLoad
from holdfast_log.checker.parts import LoadPart
from holdfast_log.checker.recorder import Recorder
from holdfast_log.checker.verdict import HistoryVerdict, judge
from holdfast_log.clients.errors import ClientError
from holdfast_log.coordinator.tools.zookeeper_server import ZooKeeperServerError

_EVERYTHING = tuple(LoadPart)
_SHOWN_MAX = 20
_HEARD_S_MAX = 10.0


def check_own_cluster(
    directory: Path,
    recorder: Recorder,
    seconds: float,
    faults: Collection[BrokerFault],
    python_arguments: Sequence[str] = (),
    parts: Collection[LoadPart] = _EVERYTHING,
) -> list[str]:
    """Start a cluster with its data below `directory`, drive it by clients of these `parts` under faults, and
    record all calls.

    `python_arguments` are those of `checked_cluster`.
    Returns troubles, which are not about what was answered: errors that no client should raise, and a
    cluster that does not recover from a fault. Raises BrokerProcessError and others if it does not start.
    """
    with checked_cluster(directory, python_arguments) as cluster:
        load = CheckLoad(CheckSettings(cluster.bootstrap, recorder, "check"), parts)
        load.create_topics()
        cluster.wait_until_whole(load.places)
        load.start()
        try:
            try:
                until_s = recorder.now_s() + seconds
                load.wait_until_heard(_HEARD_S_MAX)
                FaultPlayer(cluster, recorder, random.Random(), click.echo).play(faults, load.places, until_s)
            finally:
                load.end()
            cluster.wait_until_whole(load.places)
            load.read_stored()
        except (BrokerProcessError, ClientError, TimeoutError) as error:
            return [*_troubles(load), f"the cluster did not recover: {error}"]
    return [*_troubles(load), *(f"{client} recorded no call" for client in load.silent_clients())]


def check_other_cluster(
    bootstrap: str, recorder: Recorder, seconds: float, parts: Collection[LoadPart] = _EVERYTHING
) -> list[str]:
    """Drive a cluster without faults, on topics of its own, which are deleted at the end. As
    `check_own_cluster`."""
    load = CheckLoad(CheckSettings(bootstrap, recorder, f"check-{uuid.uuid4().hex[:8]}"), parts)
    load.create_topics()
    try:
        load.start()
        try:
            time.sleep(seconds)
        finally:
            load.end()
        load.read_stored()
    finally:
        load.delete_topics()
    return _troubles(load)


def _troubles(load: CheckLoad) -> list[str]:
    return [f"{count} times: {what}" for what, count in load.crew.troubles.items()]


def _show(verdict: HistoryVerdict, troubles: Collection[str]) -> None:
    for violation in verdict.violations[:_SHOWN_MAX]:
        click.echo(f"VIOLATION: {violation}")
    if len(verdict.violations) > _SHOWN_MAX:
        click.echo(f"and {len(verdict.violations) - _SHOWN_MAX} more violations")
    for what in verdict.missing:
        click.echo(f"MISSING: the history does not have {what}")
    for trouble in troubles:
        click.echo(f"TROUBLE: {trouble}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=60.0, show_default=True, help="How long clients drive the cluster.")
@click.option(
    "--faults",
    default=ALL,
    show_default=True,
    help=f"{ALL}, {NONE}, or some of {', '.join(BrokerFault)}, with commas between them.",
)
@click.option(
    "--bootstrap-server",
    help="A running cluster to drive, without faults. Without it three brokers and a ZooKeeper are started.",
)
@click.option(
    "--transactions",
    "only_transactions",
    is_flag=True,
    help="Only those clients that read lists and append to them in transactions.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the history: one call in each line, as JSON.",
)
@click.option(
    "--check",
    "checked",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check the history in this file, and drive no cluster.",
)
def main(
    seconds: float,
    faults: str,
    bootstrap_server: str | None,
    only_transactions: bool,
    output: Path | None,
    checked: Path | None,
) -> None:
    """Drive a cluster with claimants, conditional writers, exclusive producers, clients of a key-value
    register, transactions on lists and readers, while faults are made to its brokers, and record what every
    client was answered and when. Then check that each resource had at most one confirmed owner at a time,
    that each partition is one log without a lost, doubled or stale record, that the register is linearizable,
    and that there is an order of the transactions which explains what they read and wrote.

    The last line has the counts. The exit status is 0 only if there is no violation.
    """
    try:
        wanted = parse_faults(faults)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--faults") from error
    troubles: list[str] = []
    parts = (LoadPart.LISTS,) if only_transactions else _EVERYTHING
    if checked is not None:
        with open(checked, encoding="utf-8") as lines:
            try:
                history = from_lines(lines)
            except ValueError as error:
                raise click.ClickException(f"{checked}: {error}") from error
    else:
        file = None if output is None else open(output, "w", encoding="utf-8")  # noqa: SIM115
        with Recorder(file) as recorder:
            if bootstrap_server is not None:
                click.echo("No faults are made: the cluster was not started by this program.")
                troubles = check_other_cluster(bootstrap_server, recorder, seconds, parts)
            else:
                troubles = _check_in_temporary_directory(recorder, seconds, wanted, parts)
        history = recorder.history
    verdict = judge(history)
    _show(verdict, troubles)
    click.echo(str(verdict))
    sys.exit(0 if verdict.holds and not troubles else 1)


def _check_in_temporary_directory(
    recorder: Recorder, seconds: float, faults: Collection[BrokerFault], parts: Collection[LoadPart]
) -> list[str]:
    directory = Path(tempfile.mkdtemp(prefix="holdfast-check-"))
    click.echo(f"{BROKERS} brokers, whose logs and data are in {directory} until this program ends in order.")
    try:
        troubles = check_own_cluster(directory, recorder, seconds, faults, parts=parts)
    except (BrokerProcessError, ZooKeeperServerError, TimeoutError) as error:
        raise click.ClickException(f"the cluster did not start: {error}") from error
    shutil.rmtree(directory, ignore_errors=True)
    return troubles


if __name__ == "__main__":
    main(prog_name="check-history.sh")
