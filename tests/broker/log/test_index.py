"""The offset index against a plain list: its cached entries are never older than the file."""

from __future__ import annotations

import random
from bisect import bisect_right
from pathlib import Path

import pytest

from holdfast_log.broker.log.disk import OsDisk
from holdfast_log.broker.log.index import OffsetIndex
from holdfast_log.broker.log.open_files import OpenFiles

BASE_OFFSET = 1000


class IndexBesideList:
    """An index and the entries it should have: (last offset of a batch, its position)."""

    def __init__(self, path: Path) -> None:
        self.index = OffsetIndex(OpenFiles(OsDisk()), str(path), BASE_OFFSET, 10 << 20)
        self.index.begin_empty()
        self.entries: list[tuple[int, int]] = []

    def append(self, count: int, chance: random.Random) -> None:
        offset, position = self.entries[-1] if self.entries else (BASE_OFFSET, 0)
        for _ in range(count):
            offset += chance.randint(1, 9)
            position += chance.randint(100, 9000)
            self.entries.append((offset, position))
            self.index.append(offset, position)

    def cut(self, chance: random.Random) -> None:
        keep = chance.randrange(len(self.entries) + 1)
        end_offset, size = self.entries[keep] if keep < len(self.entries) else (1 << 30, 1 << 30)
        del self.entries[keep:]
        self.index.truncate_to(end_offset, size)

    def position_below(self, offset: int) -> int:
        number = bisect_right(self.entries, offset, key=lambda entry: entry[0]) - 1
        return self.entries[number][1] if number >= 0 else 0

    def position_up_to(self, position: int) -> int:
        number = bisect_right(self.entries, position, key=lambda entry: entry[1]) - 1
        return self.entries[number][1] if number >= 0 else 0


@pytest.mark.parametrize("seed", range(10))
def test_index_positions_match_the_entries_after_any_lookups_appends_and_truncations(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    both = IndexBesideList(tmp_path / "00000000000000001000.index")
    for _ in range(60):
        match chance.randrange(5):
            case 0 | 1:
                both.append(chance.randrange(700), chance)
            case 2:
                both.cut(chance)
            case 3:
                both.index.write()
            case _:
                both.index.release()
        last_offset, last_position = both.entries[-1] if both.entries else (BASE_OFFSET, 0)
        start = chance.randint(BASE_OFFSET, last_offset)
        for offset in (*range(start, start + 20), last_offset, last_offset + 1):
            assert both.index.position_below(offset) == both.position_below(offset)
        start = chance.randint(0, last_position)
        for position in (*range(start, start + 90_000, 4500), last_position, last_position + 1):
            assert both.index.position_up_to(position) == both.position_up_to(position)
