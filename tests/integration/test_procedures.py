"""The procedures of docs/operating.md, run as they are written, on one cluster, one after the other.

A step finds the cluster as the step before has left it: starting brokers takes most of the time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.operated import LIMIT_S, ORDERS, RECORDS, SECTIONS, Operated, operating
from tests.integration.waiting import until


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    with operating(tmp_path) as cluster:
        yield cluster


@pytest.mark.timeout(LIMIT_S)
def test_the_procedures_of_the_page_do_what_they_say(operated: Operated) -> None:
    operated.start_with_orders()

    operated.follow("Upgrade", 0)
    operated.follow("Rolling restart")
    assert operated.ends() == RECORDS
    assert operated.follow("Upgrade", 1).count("(id: ") == 3
    assert operated.follow("Upgrade", 2).count("inter.broker.protocol.version=1 ") == 3
    operated.follow("Upgrade", 3)

    operated.follow("Adding a broker")
    assert operated.holders() == [3, 3, 3, 3]

    operated.run("scripts/server-stop.sh config/server-3.properties")
    shutil.rmtree(operated.directory / "data" / "server-3")
    operated.produce(RECORDS)
    operated.follow("Replacing a broker")
    assert operated.ends() == 2 * RECORDS

    operated.follow("Removing a broker")
    assert operated.holders() == [4, 4, 4, 0]

    used = operated.follow("Disk nearly full")
    assert '"partition":"orders-0"' in used
    until(lambda: bytes_of_orders(operated.directory / "data") < 3 * 4 * 110_000)

    operated.run("scripts/zookeeper-server-stop.sh config/zookeeper.properties")
    operated.run(
        f'scripts/console-consumer.sh --bootstrap-server "$BROKERS" --topic {ORDERS} --from-beginning '
        "--max-messages 1 --formatter noop"
    )
    operated.follow("ZooKeeper away")
    operated.produce(RECORDS)

    operated.follow("Backup and restore", 0)
    operated.produce(RECORDS)
    assert operated.ends() == 4 * RECORDS
    operated.run(
        "for id in 1 2 3; do scripts/server-stop.sh config/server-$id.properties; done\n"
        "scripts/zookeeper-server-stop.sh config/zookeeper.properties\n"
    )
    operated.follow("Backup and restore", 1)
    assert operated.ends() == 3 * RECORDS
    operated.produce(RECORDS)


def bytes_of_orders(data: Path) -> int:
    """The sizes of all segments of the topic, while brokers remove some."""
    found = 0
    for file in data.glob("server-[123]/orders-*/*.log"):
        with suppress(FileNotFoundError):
            found += file.stat().st_size
    return found


def test_every_procedure_of_the_page_is_run() -> None:
    test = Path(__file__).read_text()
    for procedure, commands in SECTIONS.items():
        assert test.count(f'follow("{procedure}"') == len(commands), procedure
