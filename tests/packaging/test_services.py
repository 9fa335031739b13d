"""The files for service managers and containers: their readers accept them, and they start what exists."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from holdfast_log.broker.network.admission import admission_of, notices
from holdfast_log.broker.network.endpoints import parse_endpoints
from holdfast_log.broker.process.cluster_secret import read_cluster_secret
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.clients.settings import read_properties
from holdfast_log.command.main import holdfast
from tests.packaging.conftest import HOME

CONFIG = HOME / "config"
UNITS = sorted((CONFIG / "systemd").glob("*.service"))
PROGRAM = "/opt/holdfast/bin/holdfast"


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def accept(words: list[str]) -> None:
    """Fail unless the program takes this command line, and a broker the settings in it."""
    with click.Context(holdfast) as context:
        name, command, rest = holdfast.resolve_command(context, list(words))
        assert command is not None and name is not None
        parsed = command.make_context(name, rest)
    if name == "server":
        given = dict(override.split("=", 1) for override in parsed.params["overrides"])
        assert not broker_settings({"zookeeper.connect": "127.0.0.1:2181", **given}).unknown


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("true")
    assert program is not None and PROGRAM in unit.read_text()
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, program))

    verified = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=300, check=False
    )

    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_a_command_that_exists(unit: Path, tmp_path: Path) -> None:
    (command,) = re.findall(rf"^ExecStart={PROGRAM} (.*)$", unit.read_text(), re.MULTILINE)
    config = tmp_path / "given.properties"
    config.touch()

    accept([str(config) if word.startswith("/etc/") else word for word in shlex.split(command)])


def compose_commands() -> list[tuple[str, list[str]]]:
    (compose,) = documents(CONFIG / "container" / "compose.yaml")
    return [
        (name, service["command"]) for name, service in compose["services"].items() if "command" in service
    ]


@pytest.mark.parametrize(("service", "command"), compose_commands())
def test_a_service_of_compose_starts_a_command_that_exists(service: str, command: list[str]) -> None:
    accept(command)


def test_brokers_of_compose_have_ids_ports_and_volumes_of_their_own() -> None:
    (compose,) = documents(CONFIG / "container" / "compose.yaml")
    brokers = [service for name, service in compose["services"].items() if name.startswith("broker-")]

    for key in ("command", "ports", "volumes"):
        assert len({json.dumps(broker[key]) for broker in brokers}) == len(brokers) == 3
    assert all(port.startswith("127.0.0.1:") for broker in brokers for port in broker["ports"])


def test_compose_draws_a_secret_once_that_brokers_accept(tmp_path: Path) -> None:
    (compose,) = documents(CONFIG / "container" / "compose.yaml")
    python, option, script = compose["services"]["secret"]["entrypoint"]
    assert (python, option) == ("python", "-c")
    path = tmp_path / "cluster.secret"
    script = script.replace("/var/lib/holdfast/cluster.secret", str(path))
    drawn = set()
    for _ in range(2):
        subprocess.run([sys.executable, option, script], timeout=300, check=True)
        secret = read_cluster_secret(str(path))
        assert secret is not None
        drawn.add(secret.keys)
    assert len(drawn) == 1
    for name, service in compose["services"].items():
        has_secret = any(volume.startswith("secret:") for volume in service["volumes"])
        assert has_secret == (name == "secret" or name.startswith("broker-"))


@pytest.mark.parametrize("command", [*compose_commands(), ("image", None), ("pod", None)], ids=lambda c: c[0])
def test_brokers_have_a_listener_that_is_closed_to_clients(command: tuple[str, list[str] | None]) -> None:
    name, words = command
    if name == "image":
        text = (CONFIG / "container" / "Dockerfile").read_text()
        words = json.loads(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[0])
    elif name == "pod":
        words = _words(_broker_container())
    assert words is not None
    if words[0] != "server":
        return
    with click.Context(holdfast) as context:
        _, command_of_server, rest = holdfast.resolve_command(context, list(words))
        assert command_of_server is not None
        parsed = command_of_server.make_context("server", rest)
    given = dict(override.split("=", 1) for override in parsed.params["overrides"])
    settings = broker_settings({**read_properties(CONFIG / "server.properties"), **given})
    endpoints = parse_endpoints(settings, "this.machine")
    admission = admission_of(settings, endpoints)
    assert admission.own == "INTERNAL"
    assert not any(notice.is_warning for notice in notices(admission, endpoints))


def _broker_container() -> dict[str, Any]:
    (found,) = [
        container
        for document in documents(CONFIG / "kubernetes" / "holdfast.yaml")
        if document["kind"] == "StatefulSet"
        for container in document["spec"]["template"]["spec"]["containers"]
        if container["name"] == "broker"
    ]
    return found


def test_the_image_starts_a_command_that_exists() -> None:
    text = (CONFIG / "container" / "Dockerfile").read_text()
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    (command,) = re.findall(r"^CMD (.*)$", text, re.MULTILINE)

    assert json.loads(entry) == ["holdfast"]
    accept(json.loads(command))


@pytest.mark.parametrize(
    "document", documents(CONFIG / "kubernetes" / "holdfast.yaml"), ids=lambda d: d["kind"]
)
def test_a_kubernetes_resource_is_valid(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_pods_start_commands_that_exist() -> None:
    for document in documents(CONFIG / "kubernetes" / "holdfast.yaml"):
        if document["kind"] == "StatefulSet":
            for container in document["spec"]["template"]["spec"]["containers"]:
                accept(_words(container))


def _words(container: dict[str, Any]) -> list[str]:
    """The arguments of `holdfast` in a container, with variables replaced as Kubernetes and the shell do."""
    if "args" in container:
        words: list[str] = container["args"]
        return words
    shell, option, script = container["command"]
    environment = {"POD_NAME": "holdfast-2", "POD_NAMESPACE": "default"}
    for variable in container["env"]:
        if "value" in variable:
            value = re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], variable["value"])
            environment[variable["name"]] = value
    printed = subprocess.run(
        [shell, option, script.replace("exec holdfast", f"exec {sys.executable} -c '{_ECHO}'")],
        env=environment, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert '"broker.id=2"' in printed.stdout
    found: list[str] = json.loads(printed.stdout)
    return found


_ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"
