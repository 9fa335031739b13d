"""Commands of the README and docs, executed as they are written but for addresses, directories and sizes.

tests/test_documented_commands.py says which test executes which block.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from holdfast_log import Admin, Consumer, Message, NewTopic, Producer
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import ClientQuotaEntity
from holdfast_log.coordinator.tools.zookeeper_process import free_port
from tests.cluster import Cluster
from tests.documented import block, commands

HOME = Path(__file__).parents[2]
TIMEOUT_S = 500
ADDRESS = "localhost:9092"


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    """A broker with access control lists, of which its clients are super users."""
    (found,) = cluster_of_module.start(1, {"authorizer.class.name": "acls", "super.users": "User:ANONYMOUS"})
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that looks like the checkout to the commands."""
    for name in ("scripts", "benchmarks", "tests", "holdfast_log", "docs"):
        (tmp_path / name).symlink_to(HOME / name)
    return tmp_path


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """As an activated environment has it: `python` is the one that runs the tests."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(HOME), "HOLDFAST_VENV": sys.prefix, "PATH": path, **(more or {})}


def run(commands_: str, place: Path, status: int = 0) -> str:
    """Run commands. Returns what they print."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands_],
        cwd=place,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == status, f"{commands_}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def at(text: str, broker: BackgroundBroker) -> str:
    """Commands for a broker at another address than the one that pages name."""
    assert ADDRESS in text
    return text.replace(ADDRESS, broker.address)


# A cluster of one's own -----------------------------------------------------------------------------------


def started(command: str, place: Path, pattern: str) -> Iterator[str]:
    """Starts a program that runs until Ctrl-C, yields what the pattern finds in its first lines, ends it."""
    process = subprocess.Popen(
        command.split(),
        cwd=place,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            said += line
            if found := re.search(pattern, line):
                yield found.group(1)
                break
        else:
            pytest.fail(f"{command} ended: {said}")
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)


def test_a_cluster_to_play_with(place: Path) -> None:
    (command,) = commands(block("README.md", "scripts/local-cluster.sh"))

    for address in started(command, place, r"((?:127\.0\.0\.1|localhost):\d+)"):
        with Admin({"bootstrap.servers": address}) as admin:
            assert len(admin.describe_cluster().nodes) == 1


def test_servers_from_their_properties_files(place: Path) -> None:
    """The files are those of config/, with ports and directories of the test's own."""
    zookeeper, client, internal = free_port(), free_port(), free_port()
    ports = {"2181": zookeeper, "9092": client, "19092": internal}
    (place / "config").mkdir()
    for name in ("zookeeper", "server"):
        text = (HOME / "config" / f"{name}.properties").read_text()
        text = re.sub(r"\b(2181|9092|19092)\b", lambda found: str(ports[found.group()]), text)
        text = re.sub(r"^(dataDir|log\.dirs)=.*$", "", text, flags=re.MULTILINE)
        directory = {"zookeeper": "dataDir", "server": "log.dirs"}[name]
        (place / "config" / f"{name}.properties").write_text(f"{text}\n{directory}={place}/data-{name}\n")
    text = block("README.md", "scripts/zookeeper-server-start.sh")
    stop = (
        "scripts/server-stop.sh config/server.properties; "
        "scripts/zookeeper-server-stop.sh config/zookeeper.properties"
    )
    try:
        said = run(f"export LOG_DIR={place}/log\n{text}", place)
        with Admin({"bootstrap.servers": f"127.0.0.1:{client}"}) as admin:
            assert len(admin.describe_cluster().nodes) == 1
        assert str(place / "log") in said, "it prints where the logs are"
    finally:
        logs = environment({"LOG_DIR": f"{place}/log"})
        subprocess.run(["bash", "-c", stop], cwd=place, env=logs, timeout=TIMEOUT_S)


def test_the_console_starts(broker: BackgroundBroker, place: Path) -> None:
    (command,) = commands(at(block("docs/console.md", "scripts/console.sh"), broker))

    # Port 8080 may be taken on the machine of the tests.
    for address in started(f"{command} --listen 127.0.0.1:0", place, r"(http://127\.0\.0\.1:\d+)"):
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=TIMEOUT_S)
        connection.request("GET", "/")
        assert b"Holdfast console" in connection.getresponse().read()
        connection.close()


# With a broker that runs ----------------------------------------------------------------------------------


def test_groups(broker: BackgroundBroker, place: Path) -> None:
    given = {"bootstrap.servers": broker.address}
    with Admin(given) as admin:
        admin.create_topics([NewTopic("orders", 2)])
    with Producer(given) as producer:
        producer.send(Message("orders", value="one", partition=0)).result()
    with Consumer({**given, "group.id": "billing", "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic("orders")
        while not consumer.poll(1_000):
            pass
        consumer.commit()

    listed, described, members, reset = commands(
        at(block("docs/consumer-groups.md", "scripts/consumer-groups.sh"), broker)
    )

    assert "billing" in run(listed, place)
    assert "orders" in run(described, place)
    run(members, place)
    assert "orders" in run(reset, place)


def test_levels_of_loggers(broker: BackgroundBroker, place: Path) -> None:
    name = "scripts/configs.sh --bootstrap-server localhost:9092 --entity-type broker-loggers"
    shown, altered, restored = commands(at(block("docs/operating.md", name), broker))

    assert "root" in run(shown, place)
    run(altered, place)
    assert "holdfast_log.broker.replication=DEBUG" in run(shown, place)
    run(restored, place)
    assert "holdfast_log.broker.replication=DEBUG" not in run(shown, place)


def test_a_digest_that_nobody_else_reads(place: Path) -> None:
    (command,) = commands(block("docs/zookeeper.md", '(umask 077; echo "holdfast'))
    run(command.replace("/etc/holdfast", str(place)), place)

    file = place / "zookeeper.digest"
    assert re.fullmatch(r"holdfast:[0-9a-f]{64}\n", file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_quotas(broker: BackgroundBroker, place: Path) -> None:
    name = "scripts/configs.sh --bootstrap-server localhost:9092 --client"
    printed = run(at(block("docs/quotas.md", name), broker), place)

    assert "producer_byte_rate" in printed
    with Admin({"bootstrap.servers": broker.address}) as admin:
        quotas = admin.describe_client_quotas()
    assert quotas[ClientQuotaEntity.of(client_id="loader")] == {"producer_byte_rate": 1048576.0}
    assert quotas[ClientQuotaEntity.of(client_id=None)] == {"consumer_byte_rate": 10485760.0}
    assert quotas[ClientQuotaEntity.of(user="anna", client_id="loader")] == {"request_percentage": 20.0}


def test_users_of_scram(broker: BackgroundBroker, place: Path) -> None:
    altered, shown, removed = commands(at(block("docs/security.md", "scripts/configs.sh"), broker))

    run(altered, place)
    assert "SCRAM-SHA-512=iterations=8192" in run(shown, place)
    run(removed, place)
    assert "alice" not in run(shown, place)


def test_access_control_lists(broker: BackgroundBroker, place: Path) -> None:
    *added, listed, removed = commands(at(block("docs/security.md", "scripts/acls.sh"), broker))

    for each in added:
        run(each, place)
    shown = run(listed, place)
    assert "User:anna" in shown and "User:bert" in shown and "192.0.2.7" in shown
    run(removed, place)
    assert "User:anna" not in run(listed, place)


def test_the_record_of_a_query(broker: BackgroundBroker, place: Path) -> None:
    """tests/pipeline/sink reads records of queries that there are."""
    (command,) = commands(at(block("docs/spark-sink.md", "python -m"), broker))

    assert "QUERY-ID: nothing was written under this name" in run(command, place, status=1)


# Programs that run for minutes ----------------------------------------------------------------------------


def test_the_fault_matrix_lists_its_cells(place: Path) -> None:
    found = commands(block("docs/reliability.md", "scripts/fault-matrix.sh"))
    (listed,) = [each for each in found if each.endswith("--list")]

    assert "leader/" in run(listed, place)


def test_seeds_are_simulated(place: Path) -> None:
    campaign, traced, shrunk, _ = commands(block("docs/simulation.md", "scripts/simulate.sh --seeds"))

    assert "2 of 2 seeds held" in run(campaign.replace("1000", "2"), place)
    assert len(run(traced, place).splitlines()) > 100
    run(shrunk, place)


def test_a_known_bug_is_replayed(place: Path) -> None:
    (command,) = commands(block("docs/simulation.md", "scripts/simulate.sh --replay 1 "))

    run(command, place, status=1)


BENCHMARKS = [
    each
    for page, first in (
        ("README.md", ".venv/bin/python -m benchmarks.broker"),
        ("docs/benchmarks.md", "python -m benchmarks.peers"),
        ("docs/reliability.md", "python -m benchmarks.availability"),
    )
    for each in commands(block(page, first))
]


def test_a_benchmark_knows_its_options(place: Path) -> None:
    """Each measures for minutes, on a quiet machine. Here it explains itself and knows the page's options."""
    for command in BENCHMARKS:
        program = command.replace(".venv/bin/python", "python")
        said = run(f"{program.split(' --')[0]} --help", place)
        assert "usage" in said.lower()
        for option in re.findall(r"--[\w-]+", command):
            assert option in said, command
