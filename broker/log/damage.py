"""Damage to the files of a segment: the suspicion that a read raises, and the result of an examination.

A read that finds content which no broker writes raises `SuspectSegment`. The read cannot know whether the
index or the log is wrong: an examination of the whole segment (`broker.log.inspection`) decides. A wrong
index is rebuilt. For a wrong log, a file beside it holds its `Damage` until the segment has been replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from holdfast_log.protocol.checksum import crc32c

_VERSION = "0"


class SuspectSegment(Exception):
    """A segment's log or index holds something that no broker writes; the message says what."""


class BatchPlace(NamedTuple):
    """Where a batch begins: byte `position` of the segment's file, and `offset`."""

    position: int
    offset: int


@dataclass(frozen=True, slots=True)
class Damage:
    """The unreadable part of a segment: from byte `position` of its file and from `offset` on, up to the
    sound batches that begin at `behind`; None: to its end."""

    base_offset: int
    position: int
    offset: int
    reason: str
    behind: BatchPlace | None = None


def encode_damage(damage: Damage) -> bytes:
    """The content of the file that marks a segment as damaged."""
    numbers = (damage.position, damage.offset, *(damage.behind or ()))
    text = f"{_VERSION}\n{' '.join(map(str, numbers))}\n{damage.reason}\n"
    return f"{text}{crc32c(text.encode()):08x}\n".encode()


def decode_damage(base_offset: int, data: bytes) -> Damage:
    """Raises `ValueError` for a file that was not written as a whole."""
    version, place, reason, checksum = data.decode().splitlines()
    text = f"{version}\n{place}\n{reason}\n"
    if version != _VERSION or int(checksum, 16) != crc32c(text.encode()):
        raise ValueError("it is damaged itself")
    position, offset, *behind = map(int, place.split())
    return Damage(base_offset, position, offset, reason, BatchPlace(*behind) if behind else None)
