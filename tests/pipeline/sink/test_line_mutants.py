"""The check of each row's exactly-once writing sees known mistakes: each is put back, and must be caught."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from holdfast_log.pipeline.sink.chunks import RowColumns
from holdfast_log.pipeline.sink.line import ChunkLine, RowsDifferError, _Merge
from tests.pipeline.sink.in_memory import IDENTITY, Attempt, MemoryLog

SEEDS = 300


def rows_are_exact(seed: int) -> bool:
    """Random attempts, crashes, zombies and other writers: whether each row is in the log once at the end."""
    chance = random.Random(seed)
    wanted = [(None, chance.choice("abcd").encode(), ()) for _ in range(chance.randrange(1, 9))]
    log = MemoryLog(chance.choice([1, 2, 1000]), chance.random() < 0.5, chance.random() < 0.5)

    def attempt() -> Attempt:
        return Attempt(log, chance.sample(wanted, len(wanted)), rows_max=chance.randrange(1, 4))

    living = [attempt()]
    try:
        for _ in range(chance.randrange(5, 80)):
            move = chance.random()
            if move < 0.08:
                living.append(attempt())
            elif move < 0.15:
                log.append([(None, b"other", ())], chance.choice([None, chance.randbytes(16)]))
            else:
                chance.choice(living).step(loses_answer=chance.random() < 0.1)
        living.append(attempt())
        for each in reversed(living):
            each.run()
    except (RowsDifferError, AssertionError):
        return False
    return Counter(log.rows_of(IDENTITY.prefix)) == Counter(wanted)


def _trusts_every_mismatch(line: ChunkLine, end_offset: int, ids_from: int = -1) -> None:
    line.counts.conflicts += 1
    line._absent_before = end_offset


def _takes_a_repeat_for_its_own(line: ChunkLine, first_offset: int) -> None:
    assert line._chunk is not None
    line._pass(first_offset + len(line._chunk), may_continue=False)


def _counts_each_row_once(merge: _Merge, rows: RowColumns) -> None:
    merge.rows = Counter(set(merge.rows) | set(rows))


def _sends_rows_that_are_there(line: ChunkLine, merge: _Merge) -> None:
    """In place of `_filter`."""


def _trusts_any_reach(line: ChunkLine, end_offset: int, ids_from: int = -1) -> None:
    if ids_from >= 0:
        line._absent_before = end_offset
        return
    _mismatched(line, end_offset, ids_from)


_mismatched = ChunkLine.mismatched


@pytest.mark.parametrize(
    ("where", "name", "mutant"),
    [
        (ChunkLine, "mismatched", _trusts_every_mismatch),
        (ChunkLine, "mismatched", _trusts_any_reach),
        (ChunkLine, "repeated", _takes_a_repeat_for_its_own),
        (ChunkLine, "_filter", _sends_rows_that_are_there),
        (_Merge, "add", _counts_each_row_once),
    ],
)
def test_a_known_mistake_is_caught(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, mutant: Callable[..., None]
) -> None:
    monkeypatch.setattr(where, name, mutant)

    assert any(not rows_are_exact(seed) for seed in range(SEEDS))


def test_without_a_mistake_each_row_is_written_once() -> None:
    assert all(rows_are_exact(seed) for seed in range(SEEDS))
