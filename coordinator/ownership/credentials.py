"""The secret by which an owner proves that a request is its own, and the digest that brokers keep of it.

The claimant draws the secret and sends it with its claim: a claim that is repeated because its answer was
lost proves itself, although the claimant has received nothing. Owner ids prove nothing, because refusals
and DescribeOwners publish them.
"""

from __future__ import annotations

import hashlib
import hmac

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 64
NO_SECRET = b""
"""The digest kept of an owner that sent no secret."""


def digest_of(secret: bytes) -> bytes:
    """The SHA-256 of a secret; `NO_SECRET` for none. A random secret of 16 bytes needs no salt."""
    return hashlib.sha256(secret).digest() if secret else NO_SECRET


def is_proof(digest: bytes, kept: bytes) -> bool:
    """Whether the digest of a request's secret equals the one that was kept, compared in constant time."""
    return kept != NO_SECRET and hmac.compare_digest(digest, kept)
