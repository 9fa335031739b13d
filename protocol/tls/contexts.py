"""TLS contexts made from Kafka's settings `ssl.*`, of a side that connects and of one that accepts."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast_log.protocol.tls.ciphers import CipherError, choose_ciphers
from holdfast_log.protocol.tls.names import HTTPS, TLS_VERSIONS
from holdfast_log.protocol.tls.stores import Stores

_VERSION = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsError(Exception):
    """The settings `ssl.*` cannot be used together. The message names the setting and says what to do."""


def connecting_context(settings: Mapping[str, Any], stores: Stores) -> ssl.SSLContext:
    """The context of a side that connects. Without a trust store it trusts the system's authorities.

    Raises `TlsError`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = settings["ssl.endpoint.identification.algorithm"]
    context.check_hostname = algorithm is not None and algorithm.lower() == HTTPS
    _set_up(context, settings)
    if not _trust(context, settings, stores):
        context.load_default_certs()
    _load_key(context, settings, stores)
    return context


def accepting_context(settings: Mapping[str, Any], stores: Stores) -> ssl.SSLContext:
    """The context of a side that accepts connections. Raises `TlsError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_up(context, settings)
    if not _load_key(context, settings, stores):
        raise TlsError(
            "ssl.keystore.location is missing: a listener with TLS needs a private key and a certificate"
        )
    if _trust(context, settings, stores):
        context.verify_mode = _VERIFY[settings["ssl.client.auth"]]
    elif settings["ssl.client.auth"] != "none":
        raise TlsError(
            f"ssl.client.auth={settings['ssl.client.auth']} is not allowed without ssl.truststore.location: "
            "expected the certificates of the authorities whose clients are welcome"
        )
    return context


def _set_up(context: ssl.SSLContext, settings: Mapping[str, Any]) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    versions = [_VERSION[name] for name in settings["ssl.enabled.protocols"]]
    if not versions:
        raise TlsError(f"ssl.enabled.protocols is empty: expected any of {', '.join(TLS_VERSIONS)}")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    suites: Sequence[str] | None = settings["ssl.cipher.suites"]
    if suites:
        try:
            choose_ciphers(context, suites)
        except CipherError as error:
            raise TlsError(f"ssl.cipher.suites={','.join(suites)!r} is not allowed: {error}") from None


def _trust(context: ssl.SSLContext, settings: Mapping[str, Any], stores: Stores) -> bool:
    if stores.trusted is None:
        return False
    try:
        context.load_verify_locations(cadata=stores.trusted)
    except (ssl.SSLError, ValueError) as error:
        where = _name("truststore", settings)
        raise TlsError(f"{where} has no certificates that can be read: {error}") from None
    return True


def _load_key(context: ssl.SSLContext, settings: Mapping[str, Any], stores: Stores) -> bool:
    if stores.key is None:
        return False
    try:
        stores.key.load_into(context)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
        raise TlsError(
            f"{_name('keystore', settings)} has no private key that fits its certificate, or "
            f"ssl.key.password is not its password: {error}"
        ) from None
    return True


def _name(store: str, settings: Mapping[str, Any]) -> str:
    location = settings[f"ssl.{store}.location"]
    if location is not None:
        return f"ssl.{store}.location={location!r}"
    return "ssl.keystore.key" if store == "keystore" else "ssl.truststore.certificates"
