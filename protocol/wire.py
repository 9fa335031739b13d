"""Single values on the wire: unsigned varints, lengths, tagged fields, and their errors."""

from __future__ import annotations

import struct
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to decode from. A memoryview is never copied."""

MAX_STRING_BYTES = 0x7FFF
"""Kafka's limit for every string, in bytes."""
MAX_TAGGED_FIELDS = 127
"""Maximum number of tagged fields in one struct, known or not. Kafka's structs have a handful."""
_MAX_VARINT_SHIFT = 28
_MAX_UINT32 = 0xFFFF_FFFF


class MalformedMessage(ValueError):
    """Received bytes that are not a message of the expected class and version: the peer's error."""


class TooManyElements(MalformedMessage):
    """A message with more elements than its reader allows. Few bytes can stand for many elements in
    memory."""


class InvalidMessage(ValueError):
    """A message that cannot be encoded, since a value does not fit its field's type: the sender's error."""


class UnsupportedField(InvalidMessage):
    """A field is set that the version does not have, and that must not be dropped silently."""


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
"""All varints of one byte."""


def uvarint_rest(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """The value of a varint of several bytes, and the position after it. `first` is its first byte.

    `position` is that of the second byte. Raises MalformedMessage for more than 32 bits, IndexError at the
    end of the buffer.
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
    """The varint at `position`, and the position after it. Raises as `uvarint_rest` does."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return uvarint_rest(buffer, position + 1, first)


def compact_length(length: int) -> bytes:
    """The encoded length of a compact array, bytes or records: length plus one, since 0 means null."""
    return SMALL_UVARINTS[length + 1] if length < 127 else uvarint(length + 1)


def compact_string_length(length: int) -> bytes:
    """The encoded length of a compact string. Raises InvalidMessage above MAX_STRING_BYTES."""
    if length > MAX_STRING_BYTES:
        raise InvalidMessage(f"a string of {length} bytes; at most {MAX_STRING_BYTES} are allowed")
    return compact_length(length)


def read_tag(buffer: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """The tag of the tagged field at `position`, where its value starts, and where it ends.

    Raises MalformedMessage if the value would end after `end`.
    """
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if position + size > end:
        raise MalformedMessage(f"tagged field {tag} of {size} bytes; only {end - position} remain")
    return tag, position, position + size


def skip_tagged_fields(buffer: memoryview, position: int, end: int, first: int) -> int:
    """The position after the tagged fields of a struct that declares none.

    `first` is the first byte of their number, already read. Raises MalformedMessage for more than
    `MAX_TAGGED_FIELDS`, so that skipping stays cheap.
    """
    count = first
    if first > 0x7F:
        count, position = uvarint_rest(buffer, position, first)
        if count > MAX_TAGGED_FIELDS:
            raise MalformedMessage(f"{count} tagged fields; at most {MAX_TAGGED_FIELDS} are allowed")
    for _ in range(count):
        _tag, _start, position = read_tag(buffer, position, end)
    return position


DECODE_ERRORS = (struct.error, IndexError, UnicodeDecodeError)
"""What generated decoders raise, besides MalformedMessage, if the bytes end early or are not UTF-8."""
ENCODE_ERRORS = (struct.error, AttributeError, TypeError, OverflowError, UnicodeEncodeError)
"""What generated encoders raise if a value does not fit its field's type."""
