"""The checkpoints of very many logs: the reactor notes offsets, and a worker makes the lines."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Generator, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast_log.broker.log import directory as directories
from holdfast_log.broker.log import names
from holdfast_log.broker.log.checkpoints import OffsetEntry, decode_offsets, topic_tag
from holdfast_log.broker.log.directory import LogDirectory, MadeLater, finished_steps
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.hostile.test_decoding_work import calls_of
from tests.models.disk import SimDisk

LOGS = 10_000
CALLS_PER_LOG_MAX = 8
"""On the reactor, for a log. A call and what follows it takes 0.2 µs at most: of 10,000 these take 16 ms."""
PART = 100
STEP_CALLS_MAX = 3_000
"""In one step: these take 0.6 ms."""
TOPIC_ID = uuid.UUID(int=7)


def log(offset: int) -> Any:
    return SimpleNamespace(
        topic_id=TOPIC_ID, is_new=False, recovery_point=offset, log_start_offset=offset % 2, cleaned_offset=0
    )


@pytest.fixture
def directory() -> LogDirectory:
    made = LogDirectory(SimDisk(random.Random(1), lambda: 0), "/logs")
    made.logs = {TopicPartition("t", number): cast(Any, log(number)) for number in range(LOGS)}
    return made


def made_of(prepare: Callable[[], dict[str, MadeLater]]) -> tuple[int, dict[str, MadeLater]]:
    """How many calls the reactor makes, and the files."""
    files: dict[str, MadeLater] = {}
    return calls_of(lambda: files.update(prepare())), files


def test_the_reactor_does_little_for_the_high_watermarks_of_very_many_logs(directory: LogDirectory) -> None:
    offsets = {partition: partition.partition for partition in directory.logs}
    for _ in range(2):
        calls, files = made_of(lambda: directory.high_watermark_checkpoint(offsets))
    assert calls <= CALLS_PER_LOG_MAX * LOGS
    content = decode_offsets(files[directory.path_of(names.HIGH_WATERMARKS)]())
    assert content == {at: OffsetEntry(offset, topic_tag(TOPIC_ID)) for at, offset in offsets.items()}
    assert list(content) == sorted(content)


def test_no_step_notes_the_high_watermarks_of_very_many_logs(directory: LogDirectory) -> None:
    noted: list[int] = []

    def parts() -> Iterator[dict[TopicPartition, int]]:
        for start in range(0, LOGS, PART):
            yield {TopicPartition("t", number): number for number in range(start, start + PART)}

    files: dict[str, MadeLater] = {}
    steps = directory.high_watermark_steps(parts())
    while steps.gi_frame is not None:
        noted.append(calls_of(lambda: take_step(steps, files)))
    assert max(noted) <= STEP_CALLS_MAX, sorted(noted)[-5:]
    content = decode_offsets(files[directory.path_of(names.HIGH_WATERMARKS)]())
    assert {at: entry.offset for at, entry in content.items()} == {at: at.partition for at in directory.logs}


def take_step(steps: Generator[None, None, dict[str, MadeLater]], files: dict[str, MadeLater]) -> None:
    try:
        next(steps)
    except StopIteration as end:
        files.update(end.value)


def test_a_log_that_goes_while_high_watermarks_are_noted_has_no_row(directory: LogDirectory) -> None:
    gone, kept = TopicPartition("t", 3), TopicPartition("t", 4)
    steps = directory.high_watermark_steps([{gone: 1}, {kept: 2}])
    next(steps)
    del directory.logs[gone]
    content = decode_offsets(finished_steps(steps)[directory.path_of(names.HIGH_WATERMARKS)]())
    assert list(content) == [kept]


def test_the_reactor_does_little_for_the_recovery_points_of_very_many_logs(directory: LogDirectory) -> None:
    calls, files = made_of(directory.offset_checkpoints)
    assert calls <= CALLS_PER_LOG_MAX * LOGS
    points = decode_offsets(files[directory.path_of(names.RECOVERY_POINTS)]())
    starts = decode_offsets(files[directory.path_of(names.LOG_START_OFFSETS)]())
    assert [entry.offset for entry in points.values()] == list(range(LOGS))
    assert len(starts) == LOGS // 2


def test_the_content_is_that_of_the_time_of_the_request(directory: LogDirectory) -> None:
    files = directory.high_watermark_checkpoint({TopicPartition("t", 3): 10})
    directory.know_high_watermark(TopicPartition("t", 3), 20)
    del directory.logs[TopicPartition("t", 3)]
    content = decode_offsets(files[directory.path_of(names.HIGH_WATERMARKS)]())
    assert content == {TopicPartition("t", 3): OffsetEntry(10, topic_tag(TOPIC_ID))}


def test_lines_that_the_reactor_makes_are_missed(
    directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(function: Callable[..., bytes], *arguments: Any) -> MadeLater:
        made = function(*arguments)
        return lambda: made

    monkeypatch.setattr(directories, "partial", at_once)
    for check in (
        test_the_reactor_does_little_for_the_high_watermarks_of_very_many_logs,
        test_the_reactor_does_little_for_the_recovery_points_of_very_many_logs,
    ):
        with pytest.raises(AssertionError):
            check(directory)
