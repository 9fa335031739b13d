"""Fixed scenarios for bugs of the short way in Python: its tests beside the handler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.replication import test_append_in_python as of_appends

_Test = Callable[..., None]


def _of(test: _Test, *arguments: Any) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with pytest.MonkeyPatch.context() as patches:
            test(path, patches, *arguments)

    return run


_DRAWN = _of(of_appends.test_both_answer_the_same_and_leave_the_same_logs, {})
_IN_SYNC = _of(
    of_appends.test_both_answer_the_same_and_leave_the_same_logs,
    {"min.insync.replicas": 2, "segment.bytes": 2000},
)


def _left(records: Callable[[], bytes]) -> Callable[[Path], None]:
    return _of(
        of_appends.test_a_batch_that_may_need_a_worker_or_a_coordinator_is_left_to_the_handler, records
    )


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "short-append-overtakes": _of(of_appends.test_what_comes_behind_a_held_request_is_left_to_the_handler),
    "short-append-unanswerable": _DRAWN,
    "short-append-decompresses": _left(of_appends.compressed),
    "short-append-unverified": _left(of_appends.transactional),
    "short-append-owner-unasked": _of(
        of_appends.test_a_request_of_a_partition_that_has_an_owner_is_left_to_the_handler
    ),
    "short-append-of-any-size": _left(of_appends.too_large_for_the_reactor),
    "short-append-without-right": _of(
        of_appends.test_a_client_that_may_not_write_to_the_topic_is_left_to_the_handler
    ),
    "short-append-elsewhere": _DRAWN,
    "short-append-too-few-in-sync": _IN_SYNC,
    "short-append-by-anybody": _DRAWN,
    "short-append-sequence-unchecked": _DRAWN,
    "short-append-by-a-follower": _of(
        of_appends.test_both_answer_the_same_and_leave_the_same_logs, {"flush.before.ack": True}
    ),
    "short-append-acknowledged-before-commit": _DRAWN,
    "short-append-acknowledged-before-flush": _of(
        of_appends.test_with_flush_before_ack_nothing_is_answered_before_it_is_durable
    ),
    "short-append-error-raised": _DRAWN,
    "short-append-error-acknowledged": _of(
        of_appends.test_a_set_in_sync_that_shrinks_while_a_batch_is_appended_is_told
    ),
    "short-append-last-offset-told": _DRAWN,
    "short-append-log-start-untold": _of(of_appends.test_the_answer_says_where_the_log_begins),
    "short-append-answer-swapped": _DRAWN,
}
"""By the name of the bug."""
