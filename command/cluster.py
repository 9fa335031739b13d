"""`holdfast cluster`: ZooKeeper and brokers on this machine, in the background or while a command runs."""

from __future__ import annotations

import click

from holdfast_log.broker.tools import background_cluster, local_cluster
from holdfast_log.clients.tools.command import CONTEXT


@click.group(context_settings=CONTEXT)
def cluster() -> None:
    """A cluster on this machine, on free loopback ports."""


cluster.add_command(background_cluster.start, "start")
cluster.add_command(background_cluster.status, "status")
cluster.add_command(background_cluster.stop, "stop")
cluster.add_command(local_cluster.main, "run")
