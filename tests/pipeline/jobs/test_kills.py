"""Loads that are killed, and two at once, in processes of their own; and what the drill would report."""

from __future__ import annotations

import json
import random
import signal
import time
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast_log import Admin, Message, NewTopic, Producer
from holdfast_log.pipeline.jobs.ledger import DATA, Ledger, LedgerEntry
from holdfast_log.pipeline.jobs.storage import LocalStorage
from tests.pipeline.jobs.kills import LoadProcess, Place, disagreement, row, run_kills

RECORDS = 30
"""Fewer than one run of a load process takes."""


def test_a_load_that_is_killed_at_a_random_moment_has_the_topic_in_the_end(
    bootstrap: str, tmp_path: Path
) -> None:
    place = Place(bootstrap, "killed-loads", tmp_path / "table")

    verdict = run_kills(place, 1, random.Random(14), print)

    assert (verdict.kills, verdict.violations) == (1, [])


@pytest.mark.campaign
def test_of_two_whole_loads_at_once_one_wins_and_the_other_is_told_who_does_the_work(
    bootstrap: str, tmp_path: Path
) -> None:
    place = Place(bootstrap, "two-loads", tmp_path.resolve() / "table")
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(place.topic, 1)])
    with LoadProcess(place) as first, LoadProcess(place) as second:
        first.line("ready")
        second.line("ready")
        loads = load_until_one_is_refused(place, first, second)
        assert disagreement(place) is None
        assert len(results_of(place)) == loads

        pause_amid_a_load(place, first)
        loads = len(results_of(place))
        second.begin()
        assert second.line("done") == "done"  # Once the lease of the first has expired.
        first.signal(signal.SIGCONT)
        assert "this run is refused, and nothing of what it wrote counts" in first.line("superseded")

    assert disagreement(place) is None
    assert len(results_of(place)) == loads + 1


def load_until_one_is_refused(place: Place, first: LoadProcess, second: LoadProcess) -> int:
    """Let both load at the same moment. If one has done the work before the other looks, nobody is refused:
    then again, with more records. Returns how often both have loaded."""
    deadline = time.monotonic() + 300
    for loads in count(1):
        assert time.monotonic() < deadline
        add_records(place)
        first.begin()
        second.begin()
        lines = first.lines("nothing new"), second.lines("nothing new")
        refusals = [[line for line in told if line.startswith("refused")] for told in lines]
        for told, winner in zip(refusals, (second, first), strict=True):
            why = f"refused: another run of a job works on {place.table}, and this one has done nothing: "
            owner = f" process {winner.process.pid} job load "
            assert all(line.startswith(why) and owner in line for line in told), lines
        loser = 1 if "done" in lines[0] else 0
        assert (lines[0].count("done"), lines[1].count("done")) == (loser, 1 - loser), lines
        if refusals[loser]:
            return loads
    raise AssertionError


def pause_amid_a_load(place: Place, process: LoadProcess) -> None:
    """Let it load, and pause it while it writes. If it was too quick and has published, then again."""
    deadline = time.monotonic() + 300
    while True:
        loads, folders = len(results_of(place)), set((place.table / DATA).iterdir())
        add_records(place)
        process.begin()
        while set((place.table / DATA).iterdir()) == folders:
            assert process.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        process.signal(signal.SIGSTOP)
        if len(results_of(place)) == loads:
            return
        process.signal(signal.SIGCONT)
        process.line("nothing new")


def add_records(place: Place) -> None:
    """Add records to the topic, as many as each earlier run has loaded; not more than one run loads."""
    begin = RECORDS * len(results_of(place))
    with Producer({"bootstrap.servers": place.bootstrap}) as producer:
        for offset in range(begin, begin + RECORDS):
            producer.send(Message(place.topic, value=row(0, offset), partition=0))


def results_of(place: Place) -> list[LedgerEntry]:
    """What the runs of the load have published."""
    return Ledger(LocalStorage(place.table), "reader", -1).results()


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([0, 1, 2], None),
        ([0, 1], "1 rows are missing and 0 are surplus"),
        ([0, 1, 2, 2], "0 rows are missing and 1 are surplus"),
        ([0, 1, 2, 3], "0 rows are missing and 1 are surplus"),
    ],
)
def test_the_drill_notices_when_files_and_offsets_differ(
    offsets: list[int], expected: str | None, tmp_path: Path
) -> None:
    place = Place("", "t", tmp_path)
    ledger = Ledger(LocalStorage(tmp_path), "run", 1)
    ledger.claim()
    path = f"{ledger.folder()}/part.parquet"
    (tmp_path / path).parent.mkdir(parents=True)
    rows = [{"partition": 0, "offset": offset, "value": row(0, offset).encode()} for offset in offsets]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / path)
    ledger.finish("load", {"t": {"0": 3}}, [path])

    found = disagreement(place)

    assert found is None if expected is None else (found or "").startswith(expected), json.dumps(found)
