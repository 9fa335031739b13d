"""Transactions of two Go clients, franz-go and sarama: commit, abort, offsets of a group, fencing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster import BackgroundBroker, Cluster
from tests.integration.clients import consume, create_topic, produce

confluent = pytest.importorskip("confluent_kafka")

SOURCE = Path(__file__).parent / "drivers" / "go_transactions"
pytestmark = pytest.mark.timeout(1800)

BUILD_TIMEOUT_S = 600
RUN_TIMEOUT_S = 500
WAIT_S = 120


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver, compiled. Skips the tests where there is no Go, or the clients cannot be had."""
    if not shutil.which("go"):
        pytest.skip("there is no Go, which compiles the clients franz-go and sarama")
    modules = subprocess.run(
        ["go", "mod", "download"],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if modules.returncode != 0:
        pytest.skip(f"the Go clients franz-go and sarama cannot be had: {modules.stderr[-500:]}")
    path = tmp_path_factory.mktemp("go") / "go_transactions"
    built = subprocess.run(
        ["go", "build", "-o", str(path), "."],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return path


@pytest.fixture(scope="module")
def broker(program: Path, cluster_of_module: Cluster) -> BackgroundBroker:
    return cluster_of_module.start()[0]


@pytest.mark.parametrize(("client", "offset"), [("franz", 2), ("sarama", 7)])
def test_records_and_offsets_count_together_and_a_successor_fences(
    program: Path, broker: BackgroundBroker, client: str, offset: int
) -> None:
    """franz-go reads two of three records, since it reads the one of the aborted transaction again; sarama
    writes offsets of its own."""
    read, written = f"read-{client}", f"written-{client}"
    create_topic(broker.address, read)
    create_topic(broker.address, written)
    produce(broker.address, read, [b"a", b"b", b"c"])
    done = subprocess.run(
        [str(program), client, broker.address, read, written],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "committed true",
        "committed false",
        "committed true",
        "late refused",
        "read first",
        "read second",
        "read third",
    ]
    found = consume(broker.address, written, 3, **{"isolation.level": "read_committed"})
    assert found == [b"first", b"second", b"third"]
    asking = confluent.Consumer({"bootstrap.servers": broker.address, "group.id": read})
    (position,) = asking.committed([confluent.TopicPartition(read, 0)], WAIT_S)
    asking.close()
    assert position.offset == offset
