"""The values of Kafka's settings `ssl.*`."""

from __future__ import annotations

STORE_TYPES = ("PEM", "PKCS12", "JKS")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
CLIENT_AUTH = ("none", "requested", "required")
HTTPS = "https"
"""The value of `ssl.endpoint.identification.algorithm` with which names are verified."""
