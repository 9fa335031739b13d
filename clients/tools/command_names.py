"""What a user types: the scripts of a checkout, or `holdfast COMMAND` where Holdfast is installed.

Texts name the scripts. `as_typed` puts the commands in their place for a user of `holdfast`, who has no
scripts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import click

PROGRAM = "holdfast"
COMMAND_OF_SCRIPT: Mapping[str, str] = {
    "acls": "acls",
    "broker-api-versions": "api-versions",
    "check-history": "check-history",
    "cluster-health": "cluster-health",
    "cluster-start": "cluster start",
    "cluster-status": "cluster status",
    "cluster-stop": "cluster stop",
    "configs": "configs",
    "console": "console",
    "console-consumer": "consume",
    "console-producer": "produce",
    "consumer-groups": "groups",
    "consumer-perf-test": "consume-perf",
    "delete-records": "delete-records",
    "dump-log": "dump-log",
    "get-offsets": "offsets",
    "leader-election": "leader-election",
    "local-cluster": "cluster run",
    "log-dirs": "log-dirs",
    "owners": "owners",
    "pipeline": "pipeline",
    "producer-perf-test": "produce-perf",
    "quickstart": "quickstart",
    "reassign-partitions": "reassign-partitions",
    "server-start": "server",
    "server-stop": "server-stop",
    "topics": "topics",
    "transactions": "transactions",
    "verifiable-consumer": "verifiable-consumer",
    "verifiable-producer": "verifiable-producer",
    "zookeeper-server-start": "zookeeper",
    "zookeeper-server-stop": "zookeeper-stop",
}
"""The command of `holdfast` that does what a script does, by the script's name without `.sh`."""

_SCRIPT = re.compile(r"(?<![\w/.-])(?:scripts/)?([a-z]+(?:-[a-z]+)*)\.sh\b")


def as_command(text: str) -> str:
    """A text in which the commands of `holdfast` stand in place of the scripts that they replace."""
    return _SCRIPT.sub(_command, text)


def as_typed(text: str) -> str:
    """A text for who runs this program: with commands of `holdfast` if that was started, else as it is."""
    context = click.get_current_context(silent=True)
    is_installed = context is not None and context.find_root().info_name == PROGRAM
    return as_command(text) if is_installed else text


def explain_as_command(command: click.Command) -> None:
    """Have the help of a command, and of those below it, name commands of `holdfast`."""
    command.help = command.help and as_command(command.help)
    command.short_help = command.short_help and as_command(command.short_help)
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.help:
            parameter.help = as_command(parameter.help)
    for below in getattr(command, "commands", {}).values():
        explain_as_command(below)


def _command(found: re.Match[str]) -> str:
    command = COMMAND_OF_SCRIPT.get(found[1])
    return found[0] if command is None else f"{PROGRAM} {command}"
