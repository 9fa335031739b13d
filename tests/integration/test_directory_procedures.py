"""The procedures of docs/log-directories.md, run as they are written, on one cluster, one after the other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.operated import HOME, LIMIT_S, ORDERS, RECORDS, Operated, blocks, operating

PAGE = (HOME / "docs" / "log-directories.md").read_text()
SECTIONS = {section.partition("\n")[0]: blocks(section) for section in PAGE.split("\n## ")[1:]}
(FUNCTIONS,) = blocks(PAGE.partition("\n## ")[0])
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    with operating(tmp_path) as cluster:
        yield cluster


def follow(operated: Operated, procedure: str, number: int = 0) -> str:
    """Run the commands of a procedure of the page. Returns what they print."""
    return operated.run(FUNCTIONS + SECTIONS[procedure][number])


def sizes(operated: Operated, name: str) -> dict[str, int]:
    """What broker 1 has in a directory: the size of each replica of the topic."""
    with operated.admin() as admin:
        (found,) = (each for each in admin.describe_log_dirs([1]) if Path(each.path).name == name)
    return {
        str(row.partition): row.size_bytes
        for row in found.replicas
        if row.partition.topic == ORDERS and not row.is_future
    }


@pytest.mark.timeout(LIMIT_S)
def test_the_procedures_of_the_page_do_what_they_say(operated: Operated) -> None:
    operated.start_with_orders()

    follow(operated, "Adding a disk")
    assert len(sizes(operated, "server-1")) == 4
    assert sizes(operated, "disk-2") == {}

    printed = follow(operated, "Moving a replica to another directory")
    assert "The replica-alter-dir throttle limit was set to 50000000 B/s" in printed
    assert printed.count("completed successfully.") >= 4
    assert "Cleared the throttle of broker 1." in printed
    described = json.loads(printed.splitlines()[-1])["brokers"][0]["logDirs"]
    assert {Path(each["logDir"]).name: len(each["partitions"]) for each in described} == {
        "server-1": 0, "disk-2": 4,
    }  # fmt: skip
    assert all(sizes(operated, "disk-2").values())
    assert f"{RATE}=100000000 " in follow(operated, "Moving a replica to another directory", 1)

    follow(operated, "Taking a disk out")
    assert (operated.directory / "config" / "server-1.properties").read_text().count("log.dirs=data/disk-2\n")
    shutil.rmtree(operated.directory / "data" / "server-1")
    operated.produce(RECORDS)
    assert operated.ends() == 2 * RECORDS
    assert len(sizes(operated, "disk-2")) == 4

    operated.run("scripts/server-stop.sh config/server-1.properties")
    shutil.rmtree(operated.directory / "data" / "disk-2")
    operated.produce(RECORDS)
    follow(operated, "Replacing a disk")
    assert operated.ends() == 3 * RECORDS
    assert all(sizes(operated, "disk-2").values())


def test_every_procedure_of_the_page_is_run() -> None:
    test = Path(__file__).read_text()
    for procedure, commands in SECTIONS.items():
        assert test.count(f'follow(operated, "{procedure}"') == len(commands), procedure
