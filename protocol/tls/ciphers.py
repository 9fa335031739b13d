"""Cipher suites by their registered names, as Java and Kafka write them, and by OpenSSL's."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence

TLS_1_3_SUITES = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
"""The suites of TLS 1.3 that OpenSSL uses. Python cannot choose among them."""

_REGISTERED = re.compile(r"TLS_(?P<exchange>[A-Z0-9_]+)_WITH_(?P<cipher>[A-Z0-9_]+)")
_BLOCK_CHAINED = re.compile(r"(AES\d+|CAMELLIA\d+)-CBC-")


class CipherError(Exception):
    """The cipher suites cannot be used; the message says what is allowed."""


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2; a name that is not a registered one stays as it is.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    'ECDHE-RSA-AES128-GCM-SHA256'
    """
    match = _REGISTERED.fullmatch(suite)
    if match is None:
        return suite
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    cipher = re.sub(r"^(AES|CAMELLIA)_(\d+)", r"\1\2", match["cipher"]).replace("_", "-")
    cipher = _BLOCK_CHAINED.sub(r"\1-", cipher)
    cipher = cipher.replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305").replace("CCM-8", "CCM8")
    return exchange + cipher


def choose_ciphers(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Let the context use these suites only. Without one of TLS 1.2, or without those of 1.3, it does not
    speak that version. Raises `CipherError`."""
    newest = TLS_1_3_SUITES.intersection(suites)
    older = [openssl_name(suite) for suite in suites if suite not in TLS_1_3_SUITES]
    if newest and newest != TLS_1_3_SUITES:
        raise CipherError(
            f"expected all of {', '.join(sorted(TLS_1_3_SUITES))}, or none of them: Python cannot choose "
            "among the suites of TLS 1.3"
        )
    for name in older:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise CipherError(f"OpenSSL has no cipher suite {name} that is safe enough") from None
    if older:
        context.set_ciphers(":".join(older))
    else:
        _forbid(context, ssl.TLSVersion.TLSv1_2)
    if not newest:
        _forbid(context, ssl.TLSVersion.TLSv1_3)


def _forbid(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    if version is ssl.TLSVersion.TLSv1_3:
        highest = ssl.TLSVersion.TLSv1_2
        if context.minimum_version > highest:
            raise CipherError("none of the suites is for TLSv1.3, the only version in ssl.enabled.protocols")
        context.maximum_version = highest
        return
    lowest = ssl.TLSVersion.TLSv1_3
    if context.maximum_version == ssl.TLSVersion.TLSv1_2:
        raise CipherError("none of the suites is for TLSv1.2, the only version in ssl.enabled.protocols")
    context.minimum_version = lowest
