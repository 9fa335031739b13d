"""Single values on the wire: unsigned varints, lengths, tagged fields, and what can be wrong with them."""

from __future__ import annotations

import struct
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to decode from. A memoryview is never copied."""

MAX_STRING_BYTES = 0x7FFF
"""Kafka's bound on every string, whatever the encoding of its length could carry."""
MAX_TAGGED_FIELDS = 127
"""Of one struct, known or not; Kafka's have a handful."""
_MAX_VARINT_SHIFT = 28
_MAX_UINT32 = 0xFFFF_FFFF


class MalformedMessage(ValueError):
    """Bytes that are no message of the kind and version they were said to be: the peer's fault."""


class TooManyElements(MalformedMessage):
    """A message with more elements than its reader is ready to make: a few bytes of it are many of memory."""


class InvalidMessage(ValueError):
    """A message that cannot be encoded, because a field holds what its type cannot carry: our own fault."""


class UnsupportedField(InvalidMessage):
    """A field is set that the version to encode does not have, and that must not be dropped silently."""


class UnsupportedVersion(ValueError):
    """A version of a message that is not declared."""


def uvarint(value: int) -> bytes:
    """`value`, 0 to 2**32 - 1, as an unsigned varint: seven bits a byte, the lowest first."""
    if not 0 <= value <= _MAX_UINT32:
        raise InvalidMessage(f"{value} does not fit an unsigned varint of 32 bits")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


SMALL_UVARINTS = tuple(uvarint(value) for value in range(128))
"""The varints of one byte, which nearly all are."""


def uvarint_rest(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """The value of a varint whose `first` byte, already read, said that more follow; the position after it.

    Raises MalformedMessage over 32 bits, IndexError at the end of the buffer.
    """
    value = first & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        if shift == _MAX_VARINT_SHIFT:
            raise MalformedMessage("a varint of more than five bytes")
        shift += 7
    if value > _MAX_UINT32:
        raise MalformedMessage("a varint of more than 32 bits")
    return value, position


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """The varint at `position` and the position after it; raises as `uvarint_rest` does."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return uvarint_rest(buffer, position + 1, first)


def compact_length(length: int) -> bytes:
    """The length of a compact array, bytes or records: one more than it is, so that 0 means null."""
    return SMALL_UVARINTS[length + 1] if length < 127 else uvarint(length + 1)


def compact_string_length(length: int) -> bytes:
    """The length of a compact string. Raises InvalidMessage over Kafka's bound, which every peer checks."""
    if length > MAX_STRING_BYTES:
        raise InvalidMessage(f"a string of {length} bytes; at most {MAX_STRING_BYTES} are allowed")
    return compact_length(length)


def read_tag(buffer: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """The tag of the tagged field at `position`, where its value starts, and where it ends.

    Raises MalformedMessage where the value would end beyond `end`.
    """
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if position + size > end:
        raise MalformedMessage(f"tagged field {tag} of {size} bytes; {end - position} are left")
    return tag, position, position + size


def skip_tagged_fields(buffer: memoryview, position: int, end: int, first: int) -> int:
    """The position after the tagged fields of a struct of which none is known.

    `first` is the first byte of their number, already read. Raises MalformedMessage for more of them than
    `MAX_TAGGED_FIELDS`, so that skipping costs next to nothing.
    """
    count = first
    if first > 0x7F:
        count, position = uvarint_rest(buffer, position, first)
        if count > MAX_TAGGED_FIELDS:
            raise MalformedMessage(f"{count} tagged fields; at most {MAX_TAGGED_FIELDS} are taken")
    for _ in range(count):
        _tag, _start, position = read_tag(buffer, position, end)
    return position


DECODE_ERRORS = (struct.error, IndexError, UnicodeDecodeError)
"""What generated decoders raise, next to MalformedMessage, when the bytes end early or are no UTF-8."""
ENCODE_ERRORS = (struct.error, AttributeError, TypeError, OverflowError, UnicodeEncodeError)
"""What generated encoders raise when a field holds a value that its type cannot carry."""
