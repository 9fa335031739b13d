"""The console producer and consumer with files, times, groups, Ctrl-C and a terminal, against a broker."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast_log.clients.admin import LATEST, Admin
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import BackgroundBroker, Cluster
from tests.integration.clients import create_topic
from tests.integration.programs import TIMEOUT_S, finished

HOME = Path(__file__).parent.parent.parent
GROUPS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
HOUR_MS = 3_600_000
NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@dataclass(frozen=True, slots=True)
class Place:
    """A broker shared by the tests, and an empty topic with two partitions for one test."""

    bootstrap: str
    topic: str


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    return cluster_of_module.start(1, GROUPS)[0]


@pytest.fixture
def place(broker: BackgroundBroker, request: pytest.FixtureRequest) -> Place:
    topic = request.node.name
    create_topic(broker.address, topic, 2)
    return Place(broker.address, topic)


def command(tool: str, place: Place, *arguments: str) -> list[str]:
    return [
        sys.executable, "-m", f"holdfast_log.clients.tools.console_{tool}",
        "--bootstrap-server", place.bootstrap, "--topic", place.topic, *arguments,
    ]  # fmt: skip


def run(tool: str, place: Place, *arguments: str, text: str = "", status: int = 0) -> str:
    done = finished(command(tool, place, *arguments), text)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if status == 0 else done.stderr


def everything(place: Place) -> list[str]:
    """Read all values of the topic with the console consumer."""
    with Admin({"bootstrap.servers": place.bootstrap}) as admin:
        partitions = [TopicPartition(place.topic, number) for number in range(2)]
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
    count = sum(found.offset for found in ends.values())
    return run("consumer", place, "--from-beginning", "--max-messages", str(count)).splitlines()


def test_a_file_is_sent_line_by_line_without_a_bar_if_there_is_no_terminal(
    place: Place, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_text("".join(f"line {number}\n" for number in range(3000)) + "the last has no end")
    done = subprocess.run(
        command("producer", place, "--file", str(file)),
        cwd=HOME, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    expected = sorted([f"line {number}" for number in range(3000)] + ["the last has no end"])
    assert sorted(everything(place)) == expected
    assert "does not exist" in run("producer", place, "--file", str(tmp_path / "none"), status=2)


def test_a_terminal_shows_a_bar_of_the_bytes_read(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"0123456789\n" * 20_000)
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        command("producer", place, "--file", str(file)),
        cwd=HOME, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(theirs)
    drawn = b""
    try:
        while chunk := os.read(ours, 4096):
            drawn += chunk
    except OSError:
        pass  # A terminal raises EIO once its other side is closed.
    os.close(ours)

    assert program.wait(TIMEOUT_S) == 0
    assert b"220.0/220.0 kB" in drawn


def test_from_time_starts_each_partition_at_that_time(place: Place) -> None:
    with Producer({"bootstrap.servers": place.bootstrap}) as producer:
        for hour in range(10):
            at_ms = NEW_YEAR_MS + hour * HOUR_MS
            producer.send(Message(place.topic, value=f"{hour}", partition=hour % 2, timestamp=at_ms))

    def shown(count: int, *since: str) -> list[str]:
        return sorted(run("consumer", place, *since, "--max-messages", str(count)).split())

    assert shown(3, "--from-time", "2026-01-01T06:30:00") == ["7", "8", "9"]
    assert shown(2, "--from-time", "2026-01-01T09:00:00+01:00") == ["8", "9"]
    number = str(NEW_YEAR_MS + 4 * HOUR_MS)
    assert shown(3, "--partition", "0", "--from-time", number) == ["4", "6", "8"]
    assert run("consumer", place, "--from-time", "2026-01-02", "--timeout-ms", "1000") == ""
    for wrong in (
        ("--from-time", "soon"),
        ("--from-time", "0", "--from-beginning"),
        ("--from-time", "0", "--group", "g"),
    ):
        assert "--from-time" in run("consumer", place, *wrong, status=2)


def test_a_group_continues_after_the_last_record_shown_not_the_last_fetched(place: Place) -> None:
    with Producer({"bootstrap.servers": place.bootstrap}) as producer:
        producer.send_many(place.topic, [f"{number}" for number in range(20)], partition=0).result()
    share = ("--group", "g", "--from-beginning", "--max-messages")

    first = run("consumer", place, *share, "3").split()
    second = run("consumer", place, *share, "10").split()
    rest = run("consumer", place, *share, "7").split()

    assert first + second + rest == [f"{number}" for number in range(20)]


def test_ctrl_c_commits_the_records_shown(place: Place) -> None:
    with Producer({"bootstrap.servers": place.bootstrap}) as producer:
        producer.send_many(place.topic, ["one", "two"], partition=0).result()
        arguments = (
            "--group",
            "g",
            "--from-beginning",
            "--consumer-property",
            "auto.commit.interval.ms=600000",
        )
        program = subprocess.Popen(
            command("consumer", place, *arguments),
            cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=TIMEOUT_S)
        assert (program.returncode, said) == (0, "Processed a total of 2 messages\n")
        producer.send(Message(place.topic, value="three", partition=0)).result()

    assert run("consumer", place, *arguments, "--max-messages", "1") == "three\n"


def test_ctrl_c_at_the_prompt_exits_with_status_0(place: Place) -> None:
    with subprocess.Popen(
        command("producer", place),
        cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdin is not None and program.stderr is not None
        program.stdin.write("typed\n")
        program.stdin.flush()
        assert run("consumer", place, "--from-beginning", "--max-messages", "1") == "typed\n"
        program.send_signal(signal.SIGINT)
        assert (program.wait(TIMEOUT_S), program.stderr.read()) == (0, "")
