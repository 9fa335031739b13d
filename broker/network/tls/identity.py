"""What a listener's TLS is made of at present: contexts and mapping rules, from the settings and files."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast_log.broker.network.tls.certificates import certificates_in, expiry_s, subject_name
from holdfast_log.broker.network.tls.kernel import AUTO, enable, lacks
from holdfast_log.broker.network.tls.principals import PrincipalMapper
from holdfast_log.broker.network.tls.stream import TlsStream
from holdfast_log.protocol.tls.contexts import TlsError, accepting_context, connecting_context
from holdfast_log.protocol.tls.stores import KeyStore, StoreError, files_of, read_stores

Stamp: TypeAlias = tuple[Any, ...]
"""The settings of a listener, and the state of the files that they name. Two that are equal make the same
material."""


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """Made once from settings and files, and replaced as a whole: connections keep what they began with.

    `name` is the subject of the own certificate. `expires_s` is when the first of the own certificates
    expires, in seconds since the epoch. `encryption` says who encrypts what is sent, and why.
    """

    accepting: ssl.SSLContext
    connecting: ssl.SSLContext
    mapper: PrincipalMapper
    name: str
    expires_s: float
    stamp: Stamp
    encryption: str


def load_material(settings: Mapping[str, Any]) -> TlsMaterial:
    """What a listener needs, by its settings `ssl.*`. Raises `TlsError`."""
    stamp = stamp_of(settings)
    try:
        stores = read_stores(settings)
    except StoreError as error:
        raise TlsError(str(error)) from None
    accepting, connecting = accepting_context(settings, stores), connecting_context(settings, stores)
    lacking = "ssl.kernel.tls=never" if settings["ssl.kernel.tls"] != AUTO else lacks()
    for context in (accepting, connecting):
        context.sslsocket_class = TlsStream
        if lacking is None:
            enable(context)
    assert stores.key is not None, "a context that accepts has a key"
    name, expires_s = _own(stores.key)
    mapper = PrincipalMapper(settings["ssl.principal.mapping.rules"])
    encryption = "the kernel" if lacking is None else f"OpenSSL, because {lacking}"
    return TlsMaterial(accepting, connecting, mapper, name, expires_s, stamp, encryption)


def stamp_of(settings: Mapping[str, Any]) -> Stamp:
    """The present stamp of a listener's settings."""
    return (tuple(settings.items()), *map(_state, files_of(settings)))


def _state(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _own(key: KeyStore) -> tuple[str, float]:
    try:
        certificates = certificates_in(key.pem.decode("latin-1"))
        return subject_name(certificates[0]), min(map(expiry_s, certificates))
    except (ValueError, IndexError) as error:
        raise TlsError(f"the certificates of the key store cannot be read: {error}") from None


class TlsIdentity:
    """The present material of one listener."""

    def __init__(self, listener: str, material: TlsMaterial) -> None:
        self.listener = listener
        self.current = material
