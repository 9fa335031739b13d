"""`holdfast COMMAND …`: runs the command that a row of `COMMANDS` names, and imports nothing else."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.util import find_spec

import click

from holdfast_log.clients.tools.command import CONTEXT, DISTRIBUTION, installed_version, run
from holdfast_log.clients.tools.command_names import explain_as_command

PACKAGES_OF = {
    "server": ("twisted", "kazoo"),
    "console": ("starlette", "jinja2", "uvicorn"),
    "spark": ("pyspark", "pyarrow"),
    "": (),
}
"""The packages that a command needs, by the extra that installs them."""


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A subcommand: the click command `attribute` of a module, one line of help, the extra that it needs."""

    module: str
    attribute: str
    help: str
    extra: str = ""


SECTIONS: dict[str, dict[str, Subcommand]] = {
    "Servers": {
        "quickstart": Subcommand(
            "command.quickstart", "quickstart", "Start a cluster, move data through it, stop it.", "server"
        ),
        "server": Subcommand("command.server", "server", "Run a broker.", "server"),
        "server-stop": Subcommand("command.server", "server_stop", "Stop a broker.", "server"),
        "zookeeper": Subcommand("command.zookeeper", "zookeeper", "Run a ZooKeeper server."),
        "zookeeper-stop": Subcommand("command.zookeeper", "zookeeper_stop", "Stop a ZooKeeper server."),
        "cluster": Subcommand(
            "command.cluster", "cluster", "A cluster on this machine: start, stop, status, run.", "server"
        ),
    },
    "Data": {
        "topics": Subcommand(
            "clients.tools.topics", "topics", "Create, list, describe, alter, delete topics."
        ),
        "produce": Subcommand("clients.tools.console_producer", "console_producer", "Send lines of input."),
        "consume": Subcommand("clients.tools.console_consumer", "console_consumer", "Print records."),
        "groups": Subcommand(
            "clients.tools.consumer_groups", "consumer_groups", "List, describe, reset, delete groups."
        ),
        "transactions": Subcommand(
            "clients.tools.transactions", "transactions", "Show transactions; end those that hang."
        ),
        "owners": Subcommand("clients.tools.owners", "owners", "Show who owns what; take it away."),
        "configs": Subcommand("clients.tools.configs", "configs", "Show and alter settings and quotas."),
        "offsets": Subcommand("clients.tools.get_offsets", "get_offsets", "Print offsets of partitions."),
        "delete-records": Subcommand(
            "clients.tools.delete_records", "delete_records", "Delete records before given offsets."
        ),
        "pipeline": Subcommand(
            "pipeline.jobs.__main__", "main", "Spark jobs that load topics and files.", "spark"
        ),
    },
    "Operating": {
        "console": Subcommand("console.main", "console", "Show a cluster in a browser.", "console"),
        "reassign-partitions": Subcommand(
            "clients.tools.reassign_partitions", "reassign_partitions", "Move replicas between brokers."
        ),
        "leader-election": Subcommand(
            "clients.tools.leader_election", "leader_election", "Elect preferred leaders."
        ),
        "cluster-health": Subcommand(
            "clients.tools.cluster_health", "cluster_health", "Check a cluster, and say what to do."
        ),
        "acls": Subcommand("clients.tools.acls", "acls", "Add, remove, list access control lists."),
        "log-dirs": Subcommand("clients.tools.log_dirs", "log_dirs", "Show the sizes of replicas on disks."),
        "dump-log": Subcommand("broker.tools.dump_log", "main", "Print the files of a log.", "server"),
        "api-versions": Subcommand(
            "clients.tools.broker_api_versions", "broker_api_versions", "Show what brokers support."
        ),
    },
    "Measuring": {
        "produce-perf": Subcommand(
            "clients.tools.producer_perf_test", "producer_perf_test", "Measure a producer."
        ),
        "consume-perf": Subcommand(
            "clients.tools.consumer_perf_test", "consumer_perf_test", "Measure a consumer."
        ),
        "verifiable-producer": Subcommand(
            "clients.tools.verifiable_producer", "verifiable_producer", "Send numbers, report as JSON."
        ),
        "verifiable-consumer": Subcommand(
            "clients.tools.verifiable_consumer", "verifiable_consumer", "Read in a group, report as JSON."
        ),
        "check-history": Subcommand(
            "checker.check_history",
            "main",
            "Judge a cluster under faults: is anything lost or stale?",
            "server",
        ),
    },
    "This program": {
        "completion": Subcommand("command.completion", "completion", "Print a script for shell completion."),
    },
}
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used: `holdfast topics` starts without Twisted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = COMMANDS.get(cmd_name)
        return None if command is None else _imported(cmd_name, command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, command.help) for name, command in commands.items()])


def _imported(name: str, command: Subcommand) -> click.Command:
    """The click command. Raises click.ClickException that names the extra if a package is missing."""
    missing = [package for package in PACKAGES_OF[command.extra] if find_spec(package) is None]
    if missing:
        raise click.ClickException(
            f"holdfast {name} needs {_listed(missing)}, which this Python does not have: "
            f"pip install '{DISTRIBUTION}[{command.extra}]'"
        )
    module = importlib.import_module(f"holdfast_log.{command.module}")
    found: click.Command = getattr(module, command.attribute)
    explain_as_command(found)
    return found


def _listed(packages: list[str]) -> str:
    """The names in words: a, b and c."""
    return " and ".join(filter(None, (", ".join(packages[:-1]), packages[-1])))


@click.command(cls=LazyGroup, context_settings=CONTEXT)
@click.version_option(installed_version(), prog_name="holdfast")
def holdfast() -> None:
    """A replicated log broker, its tools and its jobs. `holdfast COMMAND --help` explains a command."""


def main() -> None:
    """Run the command line and exit: the entry point of the program `holdfast`."""
    run(holdfast, "holdfast")


if __name__ == "__main__":
    main()
