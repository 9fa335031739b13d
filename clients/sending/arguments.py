"""What a message may hold, and the arguments of producers.

`send` is called for every message. It checks by what it does anyway, and asks `check_message` only when that
has failed, for the error that says what to write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from holdfast_log.clients.arguments import (
    A_NAME,
    A_PARTITION,
    A_TIMESTAMP,
    A_UUID,
    AN_OFFSET,
    INT_MAX,
    LONG_MAX,
    PARTITION_NUMBER,
    Kind,
    OutOfRange,
    Refused,
    an_instance,
    an_int,
    mapping,
    optional,
    shown,
)
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.message import NO_VERSION, UNKNOWN_OFFSET, ConsumerRecord, Message
from holdfast_log.protocol.records import APPEND_ID_SIZE, Headers


def _take_message(value: Any) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, ConsumerRecord):
        raise Refused(
            "to send a record again, write Message(topic, record.key, record.value, headers=record.headers)"
        )
    topic = value if isinstance(value, str) else "topic"
    raise Refused(f"write send(Message({topic!r}, key=..., value=...))")


def _take_headers(value: Any) -> Headers:
    try:
        return plain_headers(value.items() if isinstance(value, dict) else value)
    except TypeError as error:
        raise Refused(str(error)) from None
    except ValueError as error:
        raise OutOfRange(str(error)) from None


def _take_append_id(value: Any) -> bytes:
    if isinstance(value, UUID):
        return value.bytes
    if not isinstance(value, bytes | bytearray | memoryview):
        raise Refused("write uuid.uuid4(), and keep it to send the same again")
    name = bytes(value)
    if len(name) != APPEND_ID_SIZE:
        raise OutOfRange(f"an append id has {APPEND_ID_SIZE} bytes, not {len(name)}")
    return name


A_MESSAGE: Final = Kind("a Message", _take_message)
HEADERS: Final = Kind("pairs of a name (str) and a value (bytes or None)", _take_headers)
A_VERSION: Final = an_int(
    f"an offset, {NO_VERSION} for a key without a record, or None", NO_VERSION, LONG_MAX
)
AN_APPEND_ID: Final = optional(Kind(f"a UUID, or {APPEND_ID_SIZE} bytes", _take_append_id))
A_LEADER_EPOCH: Final = an_int("a leader epoch, an int; -1 for any", -1, INT_MAX)
GUARDS: Final = mapping(A_PARTITION, AN_OFFSET, "{TopicPartition('topic', 0): 5}")
A_FENCE: Final = optional(an_instance(OwnerFence, "an OwnerFence, as Lease.fence() returns it"))

_FIELDS: Final = {
    "topic": A_NAME,
    "partition": optional(PARTITION_NUMBER),
    "timestamp": optional(A_TIMESTAMP),
    "headers": HEADERS,
    "offset": an_int("an offset, or -1 for any", UNKNOWN_OFFSET, LONG_MAX),
    "expected_version": optional(A_VERSION),
    "topic_id": optional(A_UUID),
}


def check_message(message: Any) -> None:
    """Raise TypeError or ValueError, with what to write instead, for what is no message, or for a field of
    one that no record can have. Keys and values are for the serializers to judge."""
    A_MESSAGE.check("send()", "each argument", message)
    for name, kind in _FIELDS.items():
        place = "a message" if name == "topic" else f"a message for {message.topic}"
        kind.check("", f"the {name} of {place}", getattr(message, name))


def plain_headers(headers: Iterable[Any]) -> Headers:
    """Headers as pairs of a str and bytes or None, which nobody can change any more. Raises TypeError, which
    names the header, for what is none."""
    return tuple(
        [
            (header[0], header[1])
            if type(header) is tuple
            and len(header) == 2
            and type(header[0]) is str
            and (header[1] is None or type(header[1]) is bytes)
            else _plain_header(header)
            for header in headers
        ]
    )


def _plain_header(header: Any) -> tuple[str, bytes | None]:
    if not isinstance(header, tuple | list) or len(header) != 2:
        raise TypeError(f"a header is a pair of name and value, not {shown(header)}")
    name, value = header
    if not isinstance(name, str):
        raise TypeError(f"the name of a header is a str, not {shown(name)}")
    if value is None:
        return str.__str__(name), None
    if not isinstance(value, bytes | bytearray | memoryview):
        hint = ": encode it first, as in value.encode()" if isinstance(value, str) else ""
        raise TypeError(f"the value of header {name!r} is bytes or None, not {type(value).__name__}{hint}")
    return str.__str__(name), bytes(value)
