"""JSON in znodes, as Kafka's ZooKeeper mode writes it: the base of all encoders and decoders.

Decoders accept what Kafka's own accept (older versions, missing optional fields, unknown fields) and raise
`BadZnode` otherwise.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from typing import Any

WRONG_SHAPE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""The exceptions raised when a JSON value does not have the expected shape."""


class BadZnode(Exception):
    """A znode's data is malformed; the message names the path."""


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON without whitespace."""
    return json.dumps(value, separators=(",", ":")).encode()


def decode_json(path: str, data: bytes) -> dict[str, Any]:
    """Decode a znode's JSON object. Raises `BadZnode`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadZnode(f"{path} does not hold JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadZnode(f"{path} does not hold a JSON object")
    return value


def decode_number(path: str, data: bytes) -> int:
    """Decode a znode's decimal number. Raises `BadZnode`."""
    try:
        return int(data)
    except ValueError:
        raise BadZnode(f"{path} does not hold a number: {data[:40]!r}") from None


def int32(value: Any) -> int:
    """`value` as a number that fits Kafka's INT32 fields. Raises one of `WRONG_SHAPE`."""
    number = int(value)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{number} does not fit 32 bits")
    return number


def int32_list(value: Any) -> tuple[int, ...]:
    """A JSON list of numbers that fit Kafka's INT32 fields. Raises one of `WRONG_SHAPE`."""
    if not isinstance(value, list):
        raise TypeError(f"expected a list of numbers, found {type(value).__name__}")
    return tuple(map(int32, value))


def encode_uuid(value: uuid.UUID) -> str:
    """Encode an id as Kafka does: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Decode an id. Raises ValueError if `text` is not 16 bytes in URL-safe base64."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except binascii.Error as error:
        raise ValueError(str(error)) from None
