"""`holdfast zookeeper` and `holdfast zookeeper-stop`: a real ZooKeeper server for brokers."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast_log.clients.tools.command import CONTEXT, pairs
from holdfast_log.command.installed_config import config_option, daemon_option, override_option
from holdfast_log.coordinator.tools.zookeeper_server import ZooKeeperServerError, start, stop

zookeeper_config = config_option("zookeeper.properties", "a server on 127.0.0.1:2181")


@click.command(context_settings=CONTEXT)
@zookeeper_config
@override_option
@daemon_option("server listens")
def zookeeper(config: Path, overrides: tuple[str, ...], daemon: bool) -> None:
    """Run a ZooKeeper server until SIGTERM or Ctrl-C.

    The first run downloads it (7 MB), unless PySpark is installed, which has it.

    KAFKA_HEAP_OPTS has options for the Java virtual machine, such as -Xmx512m (default: -Xmx256m).
    """
    try:
        start(config, pairs(overrides), daemon=daemon)
    except ZooKeeperServerError as error:
        raise click.ClickException(str(error)) from None


@click.command(context_settings=CONTEXT)
@zookeeper_config
def zookeeper_stop(config: Path) -> None:
    """Stop the ZooKeeper server that runs with the dataDir of the properties file --config."""
    try:
        stop(config)
    except ZooKeeperServerError as error:
        raise click.ClickException(str(error)) from None
