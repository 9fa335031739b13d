"""A cluster on this machine: ZooKeeper and brokers on free loopback ports.

`python -m holdfast_log.broker.tools.local_cluster [options] [-- command…]` runs a cluster until Ctrl-C or
until the command ends. The command gets the brokers' addresses in HOLDFAST_BOOTSTRAP. All processes stop at
the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Self

import click

from holdfast_log.broker.process.zookeeper_identity import DIGEST_FILE, SET_ACL, make_digest_file
from holdfast_log.broker.tools.broker_process import (
    START_TIMEOUT_S,
    BackgroundBroker,
    BrokerProcessError,
)
from holdfast_log.broker.tools.machine import Machine
from holdfast_log.broker.tools.place import Place, on_loopback
from holdfast_log.broker.tools.supervision import Supervision
from holdfast_log.clients.settings import read_properties
from holdfast_log.coordinator.private_files import make_private
from holdfast_log.coordinator.tools.directories import IMPORT_ROOT
from holdfast_log.coordinator.tools.zookeeper_process import HOST, ZooKeeperProcess, start_all
from holdfast_log.coordinator.tools.zookeeper_server import ZooKeeperServerError

BOOTSTRAP_VARIABLE = "HOLDFAST_BOOTSTRAP"
_WATCH_S = 0.2


class LocalCluster:
    """ZooKeeper and `brokers` brokers below `directory`; a context manager that starts and stops them.

    Only its brokers may write the znodes; others may read them (`zookeeper.set.acl`).

    It reuses the ports of the last cluster in that directory if they are free. `properties` are settings for
    every broker. `python_arguments` go before `-m`, for a profiler; `checkout` has the sources that
    the brokers run, by default these. `broker_type` makes a broker, for measurements of another system.

    For faults: `zookeepers` are the servers of ZooKeeper, not started yet, by default one.
    `place(number, zookeeper_connect)` returns the place of a broker in a network, by default on loopback;
    it is called once for each. `machines` are the machines of the brokers, if their clocks or disks can fail.

    Raises `BrokerProcessError` or `ZooKeeperServerError` if a process does not start. Use the cluster in one
    thread only: its processes end with the thread that has started them.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        python_arguments: Sequence[str] = (),
        checkout: Path = IMPORT_ROOT,
        zookeepers: Sequence[ZooKeeperProcess] = (),
        place: Callable[[int, str], Place] | None = None,
        machines: Sequence[Machine] = (),
        broker_type: type[BackgroundBroker] = BackgroundBroker,
    ) -> None:
        self.directory = Path(directory)
        self.zookeepers = list(zookeepers) or [ZooKeeperProcess(self.directory / "zookeeper")]
        self.machines = machines
        self.brokers: list[BackgroundBroker] = []
        self._places: list[Place] = []
        common = {
            "offsets.topic.replication.factor": str(min(3, brokers)),
            "transaction.state.log.replication.factor": str(min(3, brokers)),
            "transaction.state.log.min.isr": str(min(2, brokers)),
        }
        if broker_type.can_restrict_znodes and checkout == IMPORT_ROOT:
            common |= self._restricted_znodes()
        for number in range(1, brokers + 1):
            at = (place or self._on_loopback)(number, self.zookeeper_connect)
            log_dirs = {"log.dirs": str(machines[number - 1].log_dir)} if machines else {}
            broker = broker_type(
                self._directory_of(number),
                broker_id=number,
                zookeeper_connect=at.zookeeper_connect,
                host=at.host,
                port=at.port,
                brokers_port=at.brokers_port,
                launcher=at.launcher,
                properties={**common, **at.properties, **log_dirs, **(properties or {})},
                python_arguments=machines[number - 1].python_arguments if machines else python_arguments,
                checkout=checkout,
            )
            self._places.append(at)
            self.brokers.append(broker)

    def _restricted_znodes(self) -> dict[str, str]:
        """Settings by which only these brokers may write their znodes, with a password of their own."""
        make_private(self.directory)
        path = self.directory.absolute() / "zookeeper.digest"
        make_digest_file(path)
        return {SET_ACL: "true", DIGEST_FILE: str(path)}

    def _on_loopback(self, number: int, zookeeper_connect: str) -> Place:
        return on_loopback(zookeeper_connect, _former_port(self._directory_of(number)))

    def _directory_of(self, number: int) -> Path:
        return self.directory / f"broker-{number}"

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses for clients, as their `bootstrap.servers`."""
        return ",".join(place.address for place in self._places)

    @property
    def zookeeper_connect(self) -> str:
        """The addresses of ZooKeeper's servers, in the form of `zookeeper.connect`."""
        return ",".join(server.connect for server in self.zookeepers)

    def start(self) -> None:
        """Start everything and return once all brokers know each other."""
        with ExitStack() as undo:
            undo.callback(self.stop)
            # Not at the same time: a client that connects to a port of loopback at which nobody listens yet
            # may be given that very port as its own, and then the server cannot listen there.
            start_all(self.zookeepers)
            for broker in self.brokers:
                broker.start()
            self.wait_ready()
            undo.pop_all()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once every broker serves and knows all others. Raises `BrokerProcessError` if one has ended,
        or takes longer than `timeout_s`."""
        for broker in self.brokers:
            broker.wait_ready(len(self.brokers), timeout_s)

    def check(self) -> None:
        """Raise `BrokerProcessError`, with the end of its log, if a broker has ended unexpectedly."""
        for broker in self.brokers:
            if not broker.running:
                raise BrokerProcessError(f"broker {broker.broker_id} has ended:\n{broker.log[-3000:]}")

    def stop(self) -> None:
        """Stop the processes that run, brokers before ZooKeeper."""
        with ExitStack() as stack:
            for server in self.zookeepers:
                stack.callback(server.stop)
            for broker in self.brokers:
                stack.callback(broker.stop)

    def kill_brokers(self) -> None:
        """Kill the brokers that run: those that are cut off would take minutes to stop in order."""
        with ExitStack() as stack:
            for broker in self.brokers:
                stack.callback(broker.kill)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _former_port(directory: Path) -> int | None:
    """The port for clients that the directory's broker used last; None if another program uses it now."""
    try:
        listeners = read_properties(directory / "server.properties")["listeners"]
        port = int(listeners.partition(",")[0].rpartition(":")[2])
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except (OSError, KeyError, ValueError, OverflowError):
        return None
    return port


@click.command(context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True})
@click.option("--brokers", default=1, show_default=True, type=click.IntRange(1, 20), help="How many brokers.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for data and logs. Without it they go to a temporary directory, removed at the end.",
)
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting for every broker."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def main(brokers: int, directory: Path | None, overrides: tuple[str, ...], command: tuple[str, ...]) -> None:
    """Run ZooKeeper and brokers on free loopback ports, until Ctrl-C or while COMMAND runs.

    A broker that ends is reported, and the others go on; but while a COMMAND runs, everything ends with it.
    COMMAND finds the brokers' addresses in the environment variable HOLDFAST_BOOTSTRAP.

    \b
    local-cluster.sh --brokers 3
    local-cluster.sh --override single.writer=required -- python my_test.py
    """
    properties = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise click.BadParameter(f"{override!r} is not KEY=VALUE", param_hint="--override")
        properties[key] = value
    # SIGINT too: a shell starts background commands with SIGINT ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    status = 0
    with ExitStack() as stack:
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="holdfast-cluster-"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            cluster = stack.enter_context(LocalCluster(directory, brokers=brokers, properties=properties))
            if command:
                status = _run(command, cluster)
            else:
                click.echo(f"bootstrap.servers={cluster.bootstrap}")
                click.echo(f"zookeeper.connect={cluster.zookeeper_connect}")
                click.echo(f"Logs and data are in {directory}. Ctrl-C stops everything.")
                supervision = Supervision(
                    cluster.directory, cluster.bootstrap, cluster.zookeeper_connect, cluster.brokers, _say
                )
                while True:
                    supervision.look()
                    time.sleep(_WATCH_S)
        except KeyboardInterrupt:
            status = 130
        except (BrokerProcessError, ZooKeeperServerError) as error:
            click.echo(str(error), err=True)
            status = 1
    sys.exit(status)


def _run(command: Sequence[str], cluster: LocalCluster) -> int:
    """Run the command until it ends. Stops it if a broker ends, for which it might wait for ever."""
    child = subprocess.Popen(command, env={**os.environ, BOOTSTRAP_VARIABLE: cluster.bootstrap})
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return child.wait(_WATCH_S)
            cluster.check()
    finally:
        # On a terminal the command gets Ctrl-C too; a signal sent to this process alone is passed on here.
        if child.poll() is None:
            child.terminate()
            child.wait()


def _say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(prog_name="local-cluster.sh")
