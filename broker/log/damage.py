"""Damage to files at rest: what raises suspicion of a segment, and what an examination has found.

A read that meets something impossible raises `SuspectSegment`. That alone does not say which file is wrong:
an examination of the whole segment (`broker.log.inspection`) then blames the index, which is rebuilt, or the
log itself, whose `Damage` is kept beside it in a file until the segment is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.checksum import crc32c

_VERSION = "0"


class SuspectSegment(Exception):
    """A segment's log or index holds something that no broker writes; the message says what."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a segment cannot be read any more: from `position` in its file and from `offset` on, up to the
    next segment."""

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
