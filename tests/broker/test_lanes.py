"""Lanes of work: few jobs at a time, in turns between their owners."""

from __future__ import annotations

from holdfast_log.broker.lanes import Lane
from tests.models.workers import ImmediateWorkers


def test_owners_take_turns_and_one_job_runs_at_a_time() -> None:
    workers = ImmediateWorkers(is_held=True)
    lane = Lane(workers, 1)
    done: list[str] = []
    for owner, count in (("greedy", 4), ("modest", 1), ("other", 2)):
        for number in range(count):
            lane.run(owner, str, f"{owner} {number}").addCallback(done.append)
    assert lane.waiting == 6
    while workers.jobs:
        assert len(workers.jobs) == 1
        workers.work()
    assert done == ["greedy 0", "greedy 1", "modest 0", "other 0", "greedy 2", "other 1", "greedy 3"]
    assert lane.waiting == 0


def test_a_job_that_fails_makes_way_for_the_next() -> None:
    workers = ImmediateWorkers(is_held=True)
    lane = Lane(workers, 1)
    failures: list[object] = []
    lane.run("one", int, "no number").addErrback(lambda failure: failures.append(failure.type))
    found: list[int] = []
    lane.run("one", int, "7").addCallback(found.append)
    workers.work()
    workers.work()
    assert (failures, found) == ([ValueError], [7])
