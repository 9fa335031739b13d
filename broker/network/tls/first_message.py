"""How long a client's first message of TLS is, by its first bytes.

It is a record (RFC 8446, 5.1): one byte of type, two of version, two of length, and so many bytes.
"""

from __future__ import annotations

HANDSHAKE_RECORD = 22
"""The first byte of a TLS connection."""
_HEADER_BYTES = 5
_CONTENT_BYTES_MAX = 2**14
FIRST_MESSAGE_BYTES_MAX = _HEADER_BYTES + _CONTENT_BYTES_MAX


def first_message_bytes(first: bytes) -> int:
    """How many bytes have to be there before the handshake is worth beginning: those of the record, or of its
    header where that is incomplete. One that says to be longer than it may be is refused by its header."""
    if len(first) < _HEADER_BYTES:
        return _HEADER_BYTES
    content = int.from_bytes(first[3:_HEADER_BYTES])
    return _HEADER_BYTES + (content if content <= _CONTENT_BYTES_MAX else 0)
