"""A local cluster in the background: `cluster-start.sh [-n 3]`, `cluster-status.sh`, `cluster-stop.sh`.

The cluster is a `broker.tools.local_cluster` in a process session of its own. Its process id, log and data
are in one directory, by default var/cluster of a checkout; the next start uses the same data.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from holdfast_log.broker.tools.broker_process import known_brokers
from holdfast_log.broker.tools.supervision import (
    ClusterState,
    LocalBroker,
    ask_to_start,
    is_asked_to_start,
    read_state,
)
from holdfast_log.clients.tools.command_names import as_typed
from holdfast_log.coordinator.private_files import make_private, read_pid, write_pid
from holdfast_log.coordinator.tools.background import start_in_background, wait_for_start
from holdfast_log.coordinator.tools.directories import state_directory

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
_POLL_S = 0.1
_MODULE = "holdfast_log.broker.tools.local_cluster"

directory_option = click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=state_directory() / "cluster",
    help="Directory of data, logs and process id; by default var/cluster in a checkout, otherwise "
    "~/.local/state/holdfast/cluster.",
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-n", "--brokers", default=3, show_default=True, type=click.IntRange(1, 20), help="How many brokers."
)
@directory_option
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting for every broker."
)
@click.option(
    "--broker",
    type=int,
    metavar="ID",
    help="Start this broker of the running cluster again, after it has ended, and nothing else.",
)
def start(brokers: int, directory: Path, overrides: tuple[str, ...], broker: int | None) -> None:
    """Start ZooKeeper and brokers on free loopback ports, and return once all of them serve.

    The first line of output has the brokers' addresses. The next start uses the same data.
    """
    directory = directory.resolve()
    if broker is not None:
        _start_again(directory, broker)
        return
    running = _running(directory)
    if running is not None:
        raise click.ClickException(f"a cluster already runs in {directory} (process {running})")
    make_private(directory)
    log_path = directory / "cluster.log"
    command = [sys.executable, "-P", "-m", _MODULE, "--brokers", str(brokers), "--directory", str(directory)]
    for override in overrides:
        command += ["--override", override]
    log_path.write_bytes(b"")  # What an earlier cluster said must not count as this one's.
    cluster = start_in_background(command, log_path)
    try:
        write_pid(_pid_path(directory), cluster.pid)
        said = _wait_ready(cluster, log_path)
    except BaseException:
        cluster.terminate()
        cluster.wait(STOP_TIMEOUT_S)
        _pid_path(directory).unlink(missing_ok=True)
        raise
    click.echo("".join(line for line in said if "Ctrl-C" not in line), nl=False)
    stop = as_typed("cluster-stop.sh")
    click.echo(f"Started {brokers} brokers; logs and data are in {directory}. {stop} stops them.")


def _start_again(directory: Path, broker_id: int) -> None:
    """Have a broker of the running cluster started. Raises click.ClickException if it does not serve."""
    broker = _broker_of(_state_of(directory), broker_id)
    if broker.pid is not None:
        raise click.ClickException(f"broker {broker_id} already runs (process {broker.pid})")
    ask_to_start(directory, broker_id)
    host, _, port = broker.address.rpartition(":")
    deadline = time.monotonic() + START_TIMEOUT_S
    while is_asked_to_start(directory, broker_id) or not known_brokers(host, int(port)):
        ended = not is_asked_to_start(directory, broker_id) and _has_ended_again(directory, broker)
        if ended or time.monotonic() > deadline:
            raise click.ClickException(f"broker {broker_id} did not start; its log is {broker.log}")
        time.sleep(_POLL_S)
    pid = _broker_of(_state_of(directory), broker_id).pid
    click.echo(f"Broker {broker_id} serves again at {broker.address} (process {pid}).")


def _has_ended_again(directory: Path, before: LocalBroker) -> bool:
    """Whether the broker has ended since it was started again. Its state is written shortly after a start."""
    now = _broker_of(_state_of(directory), before.id)
    return now.pid is None and now.starts > before.starts


def _state_of(directory: Path) -> ClusterState:
    """The state of the running cluster. Raises click.ClickException if none runs."""
    state = read_state(directory)
    if _running(directory) is None or state is None:
        raise click.ClickException(f"no cluster runs in {directory}: cluster-start.sh starts one")
    return state


def _broker_of(state: ClusterState, broker_id: int) -> LocalBroker:
    found = next((broker for broker in state.brokers if broker.id == broker_id), None)
    if found is None:
        ids = ", ".join(str(broker.id) for broker in state.brokers)
        raise click.ClickException(f"this cluster has no broker {broker_id}, only {ids}")
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@directory_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def status(directory: Path, as_json: bool) -> None:
    """Show the brokers of the cluster, and which of them have ended. Exits with status 1 if any has."""
    state = _state_of(directory.resolve())
    if as_json:
        click.echo(json.dumps(asdict(state), indent=2))
    else:
        click.echo(f"bootstrap.servers={state.bootstrap}")
        click.echo(f"zookeeper.connect={state.zookeeper}")
        for broker in state.brokers:
            runs = f"runs (process {broker.pid})" if broker.pid is not None else f"has ended ({broker.ended})"
            click.echo(f"broker {broker.id} at {broker.address} {runs}; its log is {broker.log}")
    if any(broker.pid is None for broker in state.brokers):
        sys.exit(1)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@directory_option
def stop(directory: Path) -> None:
    """Stop the cluster that cluster-start.sh started, brokers before ZooKeeper."""
    directory = directory.resolve()
    pid = _running(directory)
    if pid is None:
        raise click.ClickException(f"no cluster runs in {directory}")
    # A process descriptor keeps referring to this process; its id may be reused by another.
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        if not select.select([descriptor], [], [], STOP_TIMEOUT_S)[0]:
            raise click.ClickException(f"process {pid} has not ended after {STOP_TIMEOUT_S:.0f} s")
    finally:
        os.close(descriptor)
    _pid_path(directory).unlink(missing_ok=True)
    click.echo(f"Stopped the cluster in {directory}.")


def _wait_ready(cluster: subprocess.Popen[bytes], log_path: Path) -> list[str]:
    """The cluster's output once it serves. Raises click.ClickException if it ends or takes too long."""

    def said() -> list[str]:
        return log_path.read_text(errors="replace").splitlines(keepends=True)

    if not wait_for_start(cluster, lambda: any("Ctrl-C" in line for line in said()), START_TIMEOUT_S):
        raise click.ClickException("the cluster did not start:\n" + "".join(said()[-20:]))
    return said()


def _pid_path(directory: Path) -> Path:
    return directory / "cluster.pid"


def _running(directory: Path) -> int | None:
    """The process id of the cluster in a directory; None if none runs."""
    pid = read_pid(_pid_path(directory))
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return pid if _MODULE.encode() in command and str(directory).encode() in command else None


if __name__ == "__main__":
    command = sys.argv[1]
    {"start": start, "status": status, "stop": stop}[command](sys.argv[2:], prog_name=f"cluster-{command}.sh")
