"""Damage to the files of a segment: the suspicion that a read raises, and the result of an examination.

A read that finds content which no broker writes raises `SuspectSegment`. The read cannot know whether the
index or the log is wrong: an examination of the whole segment (`broker.log.inspection`) decides. A wrong
index is rebuilt. For a wrong log, a file beside it holds its `Damage` until the segment has been replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.protocol.checksum import crc32c

_VERSION = "0"


class SuspectSegment(Exception):
    """A segment's log or index holds something that no broker writes; the message says what."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The unreadable part of a segment: from byte `position` of its file and from `offset`, to its end."""

    base_offset: int
    position: int
    offset: int
    reason: str


def encode_damage(damage: Damage) -> bytes:
    """The content of the file that marks a segment as damaged."""
    text = f"{_VERSION}\n{damage.position} {damage.offset}\n{damage.reason}\n"
    return f"{text}{crc32c(text.encode()):08x}\n".encode()


def decode_damage(base_offset: int, data: bytes) -> Damage:
    """Raises `ValueError` for a file that was not written as a whole."""
    version, place, reason, checksum = data.decode().splitlines()
    text = f"{version}\n{place}\n{reason}\n"
    if version != _VERSION or int(checksum, 16) != crc32c(text.encode()):
        raise ValueError("it is damaged itself")
    position, offset = place.split()
    return Damage(base_offset, int(position), int(offset), reason)
