"""Loads that are killed, and two at once, in processes of their own; and what the drill would report."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast import Admin, Message, NewTopic, Producer
from pipeline.jobs.ledger import DATA, Ledger
from pipeline.jobs.storage import LocalStorage
from tests.pipeline.jobs.kills import LoadProcess, Place, disagreement, row, run_kills


def test_a_load_that_is_killed_twice_at_random_moments_has_the_topic_in_the_end(
    bootstrap: str, tmp_path: Path
) -> None:
    place = Place(bootstrap, "killed-loads", tmp_path / "table")

    verdict = run_kills(place, 2, random.Random(14), print)

    assert (verdict.kills, verdict.violations) == (2, [])


def test_of_two_whole_loads_at_once_the_one_that_was_paused_is_refused_and_told_by_whom(
    bootstrap: str, tmp_path: Path
) -> None:
    place = Place(bootstrap, "two-loads", tmp_path / "table")
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(place.topic, 1)])
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for offset in range(30):
            producer.send(Message(place.topic, value=row(0, offset), partition=0))
    with LoadProcess(place) as first, LoadProcess(place) as second:
        first.go()
        deadline = time.monotonic() + 300
        while not (place.table / DATA).exists():
            assert first.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        first.signal(signal.SIGSTOP)
        second.go()
        assert second.line("done") == "done"  # Once the lease of the first has expired.
        first.signal(signal.SIGCONT)
        assert "this run is refused, and nothing of what it wrote counts" in first.line("superseded")

    assert disagreement(place) is None
    assert len(Ledger(LocalStorage(place.table), "reader", -1).results()) == 1


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
