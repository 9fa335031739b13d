"""The pytest plugin in a user's project, first without packages of the server, then with them.

One environment serves all tests: first with the bare wheel and pytest, then with the extra `testing`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast_log.coordinator.tools.zookeeper_jars import find_jars
from holdfast_log.coordinator.tools.zookeeper_server import find_java
from tests.packaging.conftest import (
    TIMEOUT_S,
    Environment,
    link_packages,
    make_environment,
    pip_install,
    requirements,
)

TESTS = """
import pytest
from holdfast_log import Consumer, Message, Producer


def test_of_their_own():
    pass


def test_with_a_broker(holdfast_bootstrap, holdfast_topic):
    with Producer({"bootstrap.servers": holdfast_bootstrap}) as producer:
        producer.send(Message(holdfast_topic, value="x")).result(timeout_ms=60_000)
    with Consumer({"bootstrap.servers": holdfast_bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic(holdfast_topic)
        records = []
        while not records:
            records = consumer.poll(1_000)
        assert records[0].value == b"x"


def test_without_a_broker():
    from holdfast_log.testing import FakeCluster

    cluster = FakeCluster()
    cluster.create_topic("flights")
    cluster.write(Message("flights", value="x"))
    assert len(cluster.records("flights")) == 1
"""


def _pytest(environment: Environment, *arguments: str) -> str:
    """What `pytest …` prints in the user's directory, whether or not tests fail."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    java_home = Path(find_java()).resolve().parents[1]
    done = subprocess.run(
        [environment.python, "-P", "-m", "pytest", *arguments],
        cwd=environment.directory,
        env={**inherited, "HOLDFAST_CACHE": str(environment.home / "cache"), "JAVA_HOME": str(java_home)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The bare wheel, pytest and the user's tests, in an otherwise empty directory."""
    environment = make_environment(tmp_path_factory.mktemp("plugin"))
    link_packages(environment, [*requirements(wheel), "pytest"])
    pip_install(environment, "--no-index", wheel)
    (environment.directory / "test_theirs.py").write_text(TESTS)
    return environment


@pytest.fixture(scope="module")
def without_server(environment: Environment) -> str:
    """What pytest says of the user's tests before the extra is installed."""
    return _pytest(environment, "-v")


@pytest.fixture(scope="module")
def with_server(environment: Environment, without_server: str, wheel: Path) -> str:
    """What it says afterwards."""
    link_packages(environment, requirements(wheel, "testing"))
    pip_install(environment, "--no-index", f"{wheel}[testing]")
    # ZooKeeper's jars need not be downloaded where they are: their checksums are compared.
    cache = environment.home / "cache" / "zookeeper"
    cache.mkdir(parents=True)
    for jar in find_jars():
        shutil.copy(jar, cache)
    return _pytest(environment, "-v")


def test_pytest_finds_the_plugin_by_itself(environment: Environment) -> None:
    said = _pytest(environment, "--help")

    assert "holdfast_brokers" in said and "holdfast_properties" in said


def test_without_packages_of_the_server_other_tests_run_and_ours_say_what_to_install(
    without_server: str,
) -> None:
    assert "test_of_their_own PASSED" in without_server, without_server
    needs = "needs twisted and kazoo, which this Python does not have: pip install 'holdfast-log[server]'"
    assert f"the fixture holdfast_cluster {needs}" in without_server
    assert f"FakeCluster {needs}" in without_server
    assert "1 failed, 1 passed, 1 error" in without_server


def test_with_the_extra_all_tests_pass(with_server: str) -> None:
    assert "3 passed" in with_server, with_server
