"""The TLS context that a client's settings describe."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from clients.errors import ConfigError


def tls_context(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """The context for `security.protocol=SSL`; None for plain text.

    Raises ConfigError where a file of certificates or keys cannot be used.
    """
    if settings["security.protocol"] != "SSL":
        return None
    try:
        context = ssl.create_default_context(cafile=settings["ssl.truststore.location"])
        keystore = settings["ssl.keystore.location"]
        if keystore is not None:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(keystore, password=settings["ssl.key.password"] or "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ssl.truststore.location or ssl.keystore.location: {error}") from None
    if settings["ssl.endpoint.identification.algorithm"] != "https":
        context.check_hostname = False
    return context
