"""scripts/console.sh: web pages that show a cluster."""

from __future__ import annotations

import click

from holdfast_log.clients.config import split_address
from holdfast_log.clients.tools.command import CONTEXT, bootstrap_option, properties, run
from holdfast_log.console.options import PORT, REFRESH_MS, ConsoleOptions, UnsafeStart, check


@click.command("console", context_settings=CONTEXT)
@bootstrap_option
@click.option(
    "--listen", default=f"127.0.0.1:{PORT}", show_default=True, metavar="HOST:PORT",
    help="Where browsers reach the console. Port 0 is any free one.",
)  # fmt: skip
@click.option(
    "--allow-changes", is_flag=True,
    help="Let people take a resource from its owner, and change rights and passwords. Without it the console "
    "only shows.",
)  # fmt: skip
@click.option(
    "--login", "needs_login", is_flag=True,
    help="People log in with their SASL user and password. Needed on any address that other machines reach.",
)  # fmt: skip
@click.option(
    "--name", "names", multiple=True, metavar="HOST",
    help="A further name by which browsers call the console. May be repeated; other names are refused.",
)  # fmt: skip
@click.option("--certificate", metavar="FILE", help="PEM file with the certificate, for https.")
@click.option("--key", metavar="FILE", help="PEM file with the certificate's private key.")
@click.option(
    "--behind-tls",
    "is_behind_tls",
    is_flag=True,
    help="A proxy in front of the console speaks TLS to browsers.",
)
@click.option(
    "--refresh-ms", type=click.IntRange(500), default=REFRESH_MS, show_default=True, metavar="MS",
    help="How often the cluster is looked at while somebody watches.",
)  # fmt: skip
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the clients.")
def console(
    bootstrap: str,
    listen: str,
    allow_changes: bool,
    needs_login: bool,
    names: tuple[str, ...],
    certificate: str | None,
    key: str | None,
    is_behind_tls: bool,
    refresh_ms: int,
    command_config: str | None,
) -> None:
    """Show a cluster in a browser: brokers, topics, messages, groups, owners, settings, rights, users.

    \b
    console.sh --bootstrap-server localhost:9092
    console.sh --bootstrap-server localhost:9092 --listen 127.0.0.1:8081 --allow-changes

    It is an ordinary client, and shows a cluster of Apache Kafka too, but for owners. It only shows unless
    --allow-changes is given, and listens on this machine only unless people log in.
    """
    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key need each other")
    host, port = _address(listen)
    options = ConsoleOptions(
        host,
        port,
        allow_changes,
        needs_login,
        names,
        certificate is not None,
        is_behind_tls,
        refresh_ms / 1000,
    )
    try:
        check(options)
    except UnsafeStart as error:
        raise click.ClickException(str(error)) from None
    given = properties(bootstrap, command_config, (), {"client.id": "console"})
    try:
        from holdfast_log.console.serving import serve  # It needs packages that a client does not.
    except ImportError as missing:
        raise click.ClickException(
            f"the console needs the package {missing.name}, which this Python does not have: run "
            "scripts/install.sh, or pip install 'holdfast-log[console]'"
        ) from None
    serve(given, options, certificate, key)


def _address(listen: str) -> tuple[str, int]:
    """Host and port. Raises click.UsageError."""
    try:
        if listen.endswith(":0"):
            return split_address(listen[:-1] + "1")[0], 0
        return split_address(listen)
    except ValueError:
        raise click.UsageError(f"--listen {listen}: give host:port, such as 127.0.0.1:{PORT}") from None


if __name__ == "__main__":
    run(console)
