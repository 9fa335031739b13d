"""A local cluster in the background: `cluster-start.sh [-n 3]`, and `cluster-stop.sh` to end it.

The cluster is a `broker.tools.local_cluster` in a process session of its own. Its process id, log and data
are in one directory, by default var/cluster of the checkout; the next start uses the same data.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
_POLL_S = 0.1
_MODULE = "holdfast_log.broker.tools.local_cluster"
_CHECKOUT = Path(__file__).parents[3]

directory_option = click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=_CHECKOUT / "var" / "cluster",
    help="Directory of data, logs and process id; by default var/cluster in the checkout.",
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-n", "--brokers", default=3, show_default=True, type=click.IntRange(1, 20), help="How many brokers."
)
@directory_option
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting for every broker."
)
def start(brokers: int, directory: Path, overrides: tuple[str, ...]) -> None:
    """Start ZooKeeper and brokers on free loopback ports, and return once all of them serve.

    The first line of output has the brokers' addresses. The next start uses the same data.
    """
    directory = directory.resolve()
    running = _running(directory)
    if running is not None:
        raise click.ClickException(f"a cluster already runs in {directory} (process {running})")
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / "cluster.log"
    command = [sys.executable, "-P", "-m", _MODULE, "--brokers", str(brokers), "--directory", str(directory)]
    for override in overrides:
        command += ["--override", override]
    path = os.pathsep.join(filter(None, [str(_CHECKOUT), os.environ.get("PYTHONPATH")]))
    with open(log_path, "wb") as log:
        cluster = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
    try:
        _pid_path(directory).write_text(f"{cluster.pid}\n")
        said = _wait_ready(cluster, log_path)
    except BaseException:
        cluster.terminate()
        cluster.wait(STOP_TIMEOUT_S)
        _pid_path(directory).unlink(missing_ok=True)
        raise
    click.echo("".join(line for line in said if "Ctrl-C" not in line), nl=False)
    click.echo(f"Started {brokers} brokers; logs and data are in {directory}. cluster-stop.sh stops them.")


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
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        ended = cluster.poll() is not None
        said = log_path.read_text(errors="replace").splitlines(keepends=True)
        if any("Ctrl-C" in line for line in said) and not ended:
            return said
        if ended or time.monotonic() > deadline:
            raise click.ClickException("the cluster did not start:\n" + "".join(said[-20:]))
        time.sleep(_POLL_S)


def _pid_path(directory: Path) -> Path:
    return directory / "cluster.pid"


def _running(directory: Path) -> int | None:
    """The process id of the cluster in a directory; None if none runs."""
    try:
        pid = int(_pid_path(directory).read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if _MODULE.encode() in command and str(directory).encode() in command else None


if __name__ == "__main__":
    command = sys.argv[1]
    {"start": start, "stop": stop}[command](sys.argv[2:], prog_name=f"cluster-{command}.sh")
