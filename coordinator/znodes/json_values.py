"""JSON in znodes, as Kafka's ZooKeeper mode writes it: what all the codecs stand on.

Decoders take whatever Kafka's own take (older versions, missing optional fields, unknown fields) and raise
`BadZnode` for the rest.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from typing import Any

WRONG_SHAPE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a JSON value as what it is not raises."""


class BadZnode(Exception):
    """A znode's data is not what belongs there; the message names the path."""


def encode_json(value: Any) -> bytes:
    """A value without blanks."""
    return json.dumps(value, separators=(",", ":")).encode()


def decode_json(path: str, data: bytes) -> dict[str, Any]:
    """The object that a znode holds. Raises `BadZnode`."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BadZnode(f"{path} does not hold JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadZnode(f"{path} does not hold a JSON object")
    return value


def decode_number(path: str, data: bytes) -> int:
    """The number that a znode holds as text. Raises `BadZnode`."""
    try:
        return int(data)
    except ValueError:
        raise BadZnode(f"{path} does not hold a number: {data[:40]!r}") from None


def encode_uuid(value: uuid.UUID) -> str:
    """Kafka writes an id as URL-safe base64 without padding: 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Raises ValueError where `text` is not 16 bytes in URL-safe base64."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except binascii.Error as error:
        raise ValueError(str(error)) from None
