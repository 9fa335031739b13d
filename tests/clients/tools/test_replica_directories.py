"""How far a replica is on its way to the log directory that a plan names, and what is said of it."""

from __future__ import annotations

import pytest

from holdfast_log.clients.tools.partitions_file import PlacedReplica
from holdfast_log.clients.tools.replica_directories import DirectoryState, PlacedDirectory, progress_of
from holdfast_log.protocol.topic_partition import TopicPartition

REPLICA = PlacedReplica(3, TopicPartition("t", 7))


@pytest.mark.parametrize(
    ("now", "is_reassigned", "state", "sentence"),
    [
        (
            PlacedDirectory("/d/2"), False, DirectoryState.COMPLETED,
            "Reassignment of replica t-7-3 completed successfully.",
        ),
        (
            PlacedDirectory("/d/1", "/d/2"), False, DirectoryState.MOVING,
            "Reassignment of replica t-7-3 is still in progress.",
        ),
        (
            PlacedDirectory("/d/2", "/d/1"), False, DirectoryState.MOVING_ELSEWHERE,
            "Partition t-7 on broker 3 is being moved to log dir /d/1 instead of /d/2.",
        ),
        (
            PlacedDirectory("/d/1"), False, DirectoryState.NOT_MOVING,
            "Partition t-7 on broker 3 is not being moved from log dir /d/1 to /d/2.",
        ),
        (
            PlacedDirectory(), False, DirectoryState.MISSING,
            "Partition t-7 cannot be found in any live log directory on broker 3.",
        ),
        (
            PlacedDirectory(), True, DirectoryState.MOVING,
            "Reassignment of replica t-7-3 is still in progress.",
        ),
    ],
)  # fmt: skip
def test_the_state_of_a_replica_and_its_sentence(
    now: PlacedDirectory, is_reassigned: bool, state: DirectoryState, sentence: str
) -> None:
    progress = progress_of(REPLICA, "/d/2", now, is_reassigned=is_reassigned)
    assert (progress.state, progress.sentence) == (state, sentence)
