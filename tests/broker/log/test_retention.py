"""Which segments retention removes: by age, by size and by the log start, as a function of values."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_log.broker.log.retention import Removal, RemovalReason, RetentionRule, SegmentFacts, removal
from holdfast_log.broker.log.settings import LogSettings

NOW_MS = 1_000_000
AGE, SIZE, LOG_START = RemovalReason.AGE, RemovalReason.SIZE, RemovalReason.LOG_START


def log_of(*latest_ms: int | None, size: int = 100) -> list[SegmentFacts]:
    """Segments of 10 offsets each with these latest timestamps; the last one is active."""
    return [
        SegmentFacts(10 * number, 10 * number + 10, size, latest, is_active=number == len(latest_ms) - 1)
        for number, latest in enumerate(latest_ms)
    ]


def decide(
    segments: list[SegmentFacts],
    age_ms_max: int = -1,
    bytes_max: int = -1,
    *,
    start: int = 0,
    high_watermark: int = 1000,
) -> Removal:
    return removal(
        segments,
        RetentionRule(age_ms_max, bytes_max),
        size_bytes=sum(segment.size for segment in segments),
        log_start_offset=start,
        high_watermark=high_watermark,
        now_ms=NOW_MS,
    )


def test_without_limits_nothing_is_removed() -> None:
    assert decide(log_of(0, 0, 0)) == Removal(0)


def test_a_segment_is_removed_when_its_latest_record_is_older_than_the_maximum_age() -> None:
    segments = log_of(NOW_MS - 101, NOW_MS - 100, NOW_MS)
    assert decide(segments, age_ms_max=100) == Removal(10, ((0, AGE),))


def test_a_young_segment_keeps_the_older_ones_behind_it() -> None:
    assert decide(log_of(NOW_MS - 500, NOW_MS, NOW_MS - 500), age_ms_max=100) == Removal(10, ((0, AGE),))


def test_when_all_records_are_too_old_the_active_segment_goes_too() -> None:
    assert decide(log_of(1, 2), age_ms_max=100) == Removal(20, ((0, AGE), (10, AGE)))


def test_an_empty_active_segment_stays() -> None:
    full, active = log_of(1, 2)
    empty = dataclasses.replace(active, next_offset=10, size=0)
    assert decide([full, empty], age_ms_max=100) == Removal(10, ((0, AGE),))
    assert decide([empty], age_ms_max=100, bytes_max=0) == Removal(0)


@pytest.mark.parametrize(
    ("bytes_max", "start"), [(400, 0), (399, 0), (300, 10), (201, 10), (200, 20), (0, 40)]
)
def test_by_size_the_oldest_go_while_the_others_reach_the_limit(bytes_max: int, start: int) -> None:
    assert decide(log_of(1, 2, 3, 4), bytes_max=bytes_max).log_start_offset == start


@pytest.mark.parametrize(("high_watermark", "start"), [(0, 0), (9, 0), (10, 10), (29, 20), (30, 30)])
def test_no_segment_with_an_uncommitted_record_is_removed(high_watermark: int, start: int) -> None:
    for limits in ({"age_ms_max": 100}, {"bytes_max": 0}):
        assert decide(log_of(1, 2, 3), **limits, high_watermark=high_watermark).log_start_offset == start


def test_closed_segments_before_the_log_start_are_removed_whatever_the_limits() -> None:
    assert decide(log_of(1, 2, 3), start=25) == Removal(25, ((0, LOG_START), (10, LOG_START)))
    assert decide(log_of(1), start=10) == Removal(10), "the active segment is never before the log start"


def test_what_one_limit_removes_counts_for_the_other() -> None:
    """By age one segment goes, and then the log is small enough."""
    segments = log_of(1, NOW_MS, NOW_MS)
    assert decide(segments, age_ms_max=100, bytes_max=250) == Removal(10, ((0, AGE),))
    assert decide(segments, age_ms_max=100, bytes_max=100) == Removal(20, ((0, SIZE), (10, SIZE)))


def test_a_segment_written_in_the_future_stays_with_all_later_ones() -> None:
    segments = log_of(1, NOW_MS + 1, 3, 4)
    assert decide(segments, age_ms_max=100) == Removal(10, ((0, AGE),), kept_by_future=10)
    assert decide(segments, age_ms_max=100, bytes_max=200).log_start_offset == 40, "by size it goes"


def test_an_unknown_time_is_asked_for_only_where_it_decides() -> None:
    segments = log_of(1, None, None)
    assert decide(segments, age_ms_max=100) == Removal(10, ((0, AGE),), unread=10)
    assert decide(segments) == Removal(0)
    assert decide(segments, age_ms_max=100, bytes_max=0) == Removal(30, ((0, SIZE), (10, SIZE), (20, SIZE)))
    assert decide(segments, age_ms_max=100, high_watermark=10) == Removal(10, ((0, AGE),))


@pytest.mark.parametrize("policy", [(), ("compact",)])
def test_only_the_policy_delete_has_limits(policy: tuple[str, ...]) -> None:
    settings = LogSettings(cleanup_policy=policy, retention_ms=1, retention_bytes=2)
    assert RetentionRule.of(settings, is_internal=False) == RetentionRule()


@pytest.mark.parametrize("policy", [("delete",), ("compact", "delete")])
def test_the_limits_are_those_of_the_topic_but_internal_topics_have_none(policy: tuple[str, ...]) -> None:
    settings = LogSettings(cleanup_policy=policy, retention_ms=1, retention_bytes=2)
    assert RetentionRule.of(settings, is_internal=False) == RetentionRule(1, 2)
    assert RetentionRule.of(settings, is_internal=True) == RetentionRule()
