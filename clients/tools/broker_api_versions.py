"""scripts/broker-api-versions.sh: the APIs and versions that each broker supports."""

from __future__ import annotations

import click

from holdfast_log.clients.admin import Admin, ApiSupport, BrokerSupport
from holdfast_log.clients.connection.cluster_view import Node
from holdfast_log.clients.errors import ClientError
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    json_option,
    print_json,
    properties,
    run,
)
from holdfast_log.protocol.errors import BrokerError


@click.command("broker-api-versions", context_settings=CONTEXT)
@bootstrap_option
@json_option
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the client.")
def broker_api_versions(bootstrap: str, as_json: bool, command_config: str | None) -> int:
    """Show for each broker the versions of every API that it supports, the version that this client would
    use, and the features that the broker announces."""
    defaults = {"client.id": "broker-api-versions", "bootstrap.timeout.ms": FIRST_CONTACT_MS}
    answers: list[tuple[Node, BrokerSupport | Exception]] = []
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        for node in admin.describe_cluster().nodes:
            try:
                answers.append((node, admin.describe_api_versions(node.id)))
            except (ClientError, BrokerError) as error:
                answers.append((node, error))
    if as_json:
        print_json([as_object(node, what) for node, what in answers])
    else:
        for node, what in answers:
            click.echo(as_text(node, what))
    return 1 if any(isinstance(what, Exception) for _, what in answers) else 0


def as_text(node: Node, what: BrokerSupport | Exception) -> str:
    """The text about one broker, in the format of Kafka's tool, followed by its features."""
    head = f"{node.host}:{node.port} (id: {node.id} rack: {node.rack or 'null'}) -> "
    if isinstance(what, Exception):
        return f"{head}ERROR: {what}"
    lines = [f"\t{_line(api)}" for api in what.apis]
    text = f"{head}(\n" + ",\n".join(lines) + "\n)"
    for name, (low, high) in what.features.items():
        text += f"\n{name}: {low} to {high}"
    return text


def _line(api: ApiSupport) -> str:
    name = f"{api.name or 'UNKNOWN'}({api.key})"
    if api.min_version is None or api.max_version is None:
        return f"{name}: UNSUPPORTED"
    versions = str(api.min_version)
    if api.max_version != api.min_version:
        versions += f" to {api.max_version}"
    usable = "UNUSABLE" if api.usable_version is None else f"usable: {api.usable_version}"
    return f"{name}: {versions} [{usable}]"


def as_object(node: Node, what: BrokerSupport | Exception) -> dict[str, object]:
    head: dict[str, object] = {"id": node.id, "host": node.host, "port": node.port, "rack": node.rack}
    if isinstance(what, Exception):
        return head | {"error": str(what)}
    apis = [
        {
            "key": api.key,
            "name": api.name,
            "minVersion": api.min_version,
            "maxVersion": api.max_version,
            "usableVersion": api.usable_version,
        }
        for api in what.apis
    ]
    features = {name: {"minVersion": low, "maxVersion": high} for name, (low, high) in what.features.items()}
    return head | {"apis": apis, "features": features}


if __name__ == "__main__":
    run(broker_api_versions)
