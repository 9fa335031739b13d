"""The SASL mechanisms of Holdfast, by the names that Kafka gives them."""

from __future__ import annotations

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


class SaslError(Exception):
    """The other side's message is not allowed, or does not prove what it should; the text says why."""
