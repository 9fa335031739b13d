"""A snapshot table that is kept current: by a process that is killed, and then by another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast_log import Admin, Message, NewTopic, Producer
from holdfast_log.pipeline.jobs.ledger import Ledger
from holdfast_log.pipeline.jobs.page import read_reports
from holdfast_log.pipeline.jobs.run import JobError, JobReport
from holdfast_log.pipeline.jobs.snapshot import SnapshotJob, follow, snapshot
from holdfast_log.pipeline.jobs.storage import LocalStorage
from holdfast_log.pipeline.jobs.tables import read_table
from tests.pipeline.local_session import warm_environment

TIMEOUT_S = 400.0
KEYS = 7
ROUND = 20
TOPIC = "followed"


class Accounts:
    """One partition of records, of which every fifth deletes its key."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.records: list[tuple[str, str | None]] = []
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, configs={"cleanup.policy": "compact"})])

    def add(self) -> None:
        with Producer({"bootstrap.servers": self._bootstrap}) as producer:
            for number in range(len(self.records), len(self.records) + ROUND):
                key, value = f"key{number % KEYS}", None if number % 5 == 3 else str(number)
                producer.send(Message(TOPIC, key=key, value=value))
                self.records.append((key, value))

    def at(self, offset: int) -> dict[str, str]:
        """The table of the records before an offset."""
        return {key: value for key, value in dict(self.records[:offset]).items() if value is not None}


def committed(table: Path) -> int:
    last = Ledger(LocalStorage(table), "reader", -1).last_result()
    return last.offsets[TOPIC]["0"] if last else 0


def rows(spark: SparkSession, table: Path) -> dict[str, str]:
    return {row.key.decode(): row.value.decode() for row in read_table(spark, table).collect()}


def await_true(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def test_a_followed_table_is_right_after_a_kill_and_is_kept_current_by_the_next_process(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    accounts, table, reports = Accounts(bootstrap), tmp_path / "table", tmp_path / "reports"
    accounts.add()
    command = [
        sys.executable,
        "-P",
        "-m",
        "holdfast_log.pipeline.jobs",
        "snapshot",
        "--master",
        "local[1]",
        "--follow",
    ]
    command += ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--output", str(table), "--every", "0.1"]
    with subprocess.Popen(
        [*command, "--report", str(reports)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **warm_environment()},
    ) as process:
        try:
            await_true(lambda: committed(table) == ROUND, process)
            accounts.add()
            await_true(lambda: committed(table) == 2 * ROUND, process)
            with pytest.raises(JobError, match=rf"another run of a job works on .* process {process.pid} "):
                snapshot(spark, SnapshotJob(given(bootstrap), table))
            folders = set((table / "data").iterdir())
            accounts.add()
            await_true(lambda: set((table / "data").iterdir()) - folders, process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert [report["status"] for report in read_reports(reports)][:2] == ["done", "done"]
    assert rows(spark, table) == accounts.at(committed(table))

    following = follow_when_free(spark, SnapshotJob(given(bootstrap), table))
    next(following)
    accounts.add()
    report = next(following)
    following.close()

    assert (report.status, committed(table)) == ("done", 4 * ROUND)
    assert rows(spark, table) == accounts.at(4 * ROUND)
    assert len(list((table / "data").iterdir())) <= 3


def given(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}


def follow_when_free(spark: SparkSession, job: SnapshotJob) -> Generator[JobReport]:
    """Follow once the lease of the killed process has expired."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            yield from follow(spark, job, 0.1)
        except JobError:
            assert time.monotonic() < deadline
            time.sleep(1)
