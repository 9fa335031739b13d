"""The bare wheel: what comes with it, that it leaves an application's names alone, that its clients work."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from tests.packaging.conftest import (
    Environment,
    link_packages,
    make_environment,
    pip_install,
    requirements,
)

REQUIRED = {"crc32c", "cramjam", "click", "javaproperties", "python-snappy", "rich"}
THEIR_OWN = {"markdown-it-py", "mdurl", "pygments", "typing-extensions"}
"""What the required packages require in turn."""

TAKEN = (
    "clients", "broker", "protocol", "pipeline", "config", "coordinator", "checker", "command", "console",
    "testing", "tests", "holdfast",
)  # fmt: skip
"""Names that an application has for packages and modules of its own."""

LISTS_PACKAGES = """
import json
from importlib.metadata import distributions
print(json.dumps([found.metadata["Name"].lower() for found in distributions()]))
"""

MOVES_RECORDS = """
import sys
from holdfast_log import Admin, Consumer, Message, NewTopic, Producer
bootstrap, topic = sys.argv[1:]
with Admin({"bootstrap.servers": bootstrap}) as admin:
    admin.create_topics([NewTopic(topic, 1)])
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    with Producer({"bootstrap.servers": bootstrap, "compression.type": codec}) as producer:
        producer.send(Message(topic, value=codec * 100)).result(timeout_ms=60_000)
with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
    consumer.add_topic(topic)
    read = []
    while len(read) < 5:
        read += [record.value.decode() for record in consumer.poll(1_000)]
print(*(value[: len(value) // 100] for value in read))
"""

IMPORTS_EVERYTHING = """
import importlib, pkgutil, sys
import holdfast_log
for name in holdfast_log.__all__:
    getattr(holdfast_log, name)
for folder in ("clients", "protocol"):
    package = importlib.import_module(f"holdfast_log.{folder}")
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        needs_an_extra = (
            "holdfast_log.clients.feedback.opentelemetry_adapter",
            "holdfast_log.clients.schemas.avro",
            "holdfast_log.clients.schemas.json_schema",
        )
        if module.name not in needs_an_extra:
            importlib.import_module(module.name)
print(len(holdfast_log.__all__), holdfast_log.__file__)
"""

IMPORTS_THEIR_OWN = f"""
import {", ".join(TAKEN)}
for module in ({", ".join(TAKEN)}):
    assert module.OWNER == "the application", module
"""


def test_the_wheel_has_one_package_and_sparks_hook(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    top = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"holdfast_log", "pyspark_holdfast.py"}
    assert not [name for name in names if name.endswith(".pth")]
    assert {
        "holdfast_log/py.typed",
        "holdfast_log/config/server.properties",
        "holdfast_log/console/templates/base.html",
        "holdfast_log/console/static/console.css",
    } <= set(names)


def test_a_bare_installation_brings_no_package_of_the_server(bare: Environment) -> None:
    came = set(json.loads(bare(LISTS_PACKAGES))) - {"pip", "setuptools", "holdfast-log"}

    assert came >= REQUIRED
    assert came <= REQUIRED | THEIR_OWN


def test_everything_public_can_be_imported(bare: Environment) -> None:
    count, place = bare(IMPORTS_EVERYTHING).split()

    assert int(count) > 80 and place.startswith(str(bare.home))


def test_the_clients_move_records_with_every_codec(bare: Environment, broker: BackgroundBroker) -> None:
    assert bare(MOVES_RECORDS, broker.address, "from-a-wheel") == "none gzip snappy lz4 zstd\n"


def test_the_command_works_and_says_what_servers_need(bare: Environment, broker: BackgroundBroker) -> None:
    where = ("--bootstrap-server", broker.address)
    assert bare.command("--version").startswith("holdfast, version ")
    bare.command("topics", *where, "--create", "--topic", "typed", "--partitions", "2")
    assert "typed" in bare.command("topics", *where, "--list").split()
    with pytest.raises(AssertionError, match=r"needs twisted and kazoo, .*holdfast-log\[server\]"):
        bare.command("server")


@pytest.mark.parametrize("form", ["wheel", "editable"])
def test_an_application_may_use_the_names_of_our_folders(
    form: str,
    bare: Environment,
    source: Path,
    wheel: Path,
    tmp_path: Path,
    broker: BackgroundBroker,
) -> None:
    """Every public name is ours, and every one of these packages is the application's."""
    environment = bare
    if form == "editable":
        environment = make_environment(tmp_path)
        link_packages(environment, [*requirements(wheel), "setuptools"])
        options = ("--no-index", "--no-build-isolation", "--editable")
        pip_install(environment, *options, source, HOLDFAST_PURE_PYTHON="1")
    project = environment.directory / "project"
    for number, name in enumerate(TAKEN):
        file = project / (f"{name}.py" if number % 2 else f"{name}/__init__.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('OWNER = "the application"\n')
    program = IMPORTS_THEIR_OWN + IMPORTS_EVERYTHING + MOVES_RECORDS

    said = Environment(environment.home, project)(program, broker.address, f"beside-{form}")

    assert said.endswith("none gzip snappy lz4 zstd\n")
