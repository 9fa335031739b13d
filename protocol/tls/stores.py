"""Key stores and trust stores: PEM and PKCS12, in files or in the settings themselves (KIP-651).

The settings are Kafka's `ssl.*`, given as a mapping. Everything is read at once; nothing is kept open.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_STORE_BYTES_MAX = 16 * 1024 * 1024
_JKS_MAGIC = b"\xfe\xed\xfe\xed"


class StoreError(Exception):
    """A key store or trust store cannot be used. The message names the setting and says what to do."""


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its certificates in PEM, the own certificate first. `password` opens the key."""

    pem: bytes
    password: str

    def __repr__(self) -> str:
        return f"KeyStore({len(self.pem)} bytes)"

    def load_into(self, context: ssl.SSLContext) -> None:
        """Give the context this key. Raises ssl.SSLError, and OSError if there is no temporary file."""
        with _private_file(self.pem) as path:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=self.password)


@dataclass(frozen=True, slots=True)
class Stores:
    """What the stores of one side hold; None without a store. `trusted` is as
    `SSLContext.load_verify_locations` takes it for `cadata`."""

    key: KeyStore | None
    trusted: str | None


def read_stores(settings: Mapping[str, Any]) -> Stores:
    """The stores of `ssl.keystore.*` and `ssl.truststore.*`. Raises `StoreError`."""
    return Stores(_read_key_store(settings), _read_trust_store(settings))


def _read_key_store(settings: Mapping[str, Any]) -> KeyStore | None:
    location = settings["ssl.keystore.location"]
    key, chain = settings["ssl.keystore.key"], settings["ssl.keystore.certificate.chain"]
    key_password = settings["ssl.key.password"]
    if key is not None or chain is not None:
        if location is not None or key is None or chain is None:
            raise StoreError(
                "ssl.keystore.key: expected together with ssl.keystore.certificate.chain, and without "
                "ssl.keystore.location"
            )
        return KeyStore(_lines(key) + b"\n" + _lines(chain) + b"\n", key_password or "")
    if location is None:
        return None
    content = _read("ssl.keystore.location", location)
    given = settings["ssl.keystore.type"]
    if _type_of("ssl.keystore", content, given) == "PEM":
        return KeyStore(content, key_password or settings["ssl.keystore.password"] or "")
    return _key_of_pkcs12(content, settings["ssl.keystore.password"], location)


def _read_trust_store(settings: Mapping[str, Any]) -> str | None:
    location, inline = settings["ssl.truststore.location"], settings["ssl.truststore.certificates"]
    if inline is not None:
        if location is not None:
            raise StoreError("ssl.truststore.certificates: expected without ssl.truststore.location")
        return _lines(inline).decode("latin-1")
    if location is None:
        return None
    content = _read("ssl.truststore.location", location)
    if _type_of("ssl.truststore", content, settings["ssl.truststore.type"]) == "PEM":
        return content.decode("latin-1")
    return _certificates_of_pkcs12(content, settings["ssl.truststore.password"], location)


def files_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The files in which the stores are."""
    names = ("ssl.keystore.location", "ssl.truststore.location")
    return tuple(settings[name] for name in names if settings[name] is not None)


def _read(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_STORE_BYTES_MAX + 1)
    except OSError as error:
        raise StoreError(f"{name}={path!r} cannot be read: {error.strerror}") from None
    if len(content) > _STORE_BYTES_MAX:
        raise StoreError(f"{name}={path!r} is no store: it has more than {_STORE_BYTES_MAX} bytes")
    return content


def _type_of(prefix: str, content: bytes, given: str | None) -> str:
    """PEM or PKCS12. As with Java, a store of type JKS may be a PKCS12 file: keytool has made these by
    default since Java 9, whatever their names."""
    if content.startswith(_JKS_MAGIC):
        raise StoreError(
            f"{prefix}.location is in the format JKS, which only Java reads: convert it with keytool "
            "-importkeystore -srckeystore OLD -destkeystore NEW -deststoretype PKCS12"
        )
    found = "PEM" if b"-----BEGIN " in content else "PKCS12"
    if given is not None and (given == "PEM") != (found == "PEM"):
        raise StoreError(f"{prefix}.type={given}: the file in {prefix}.location is not of that type")
    return found


def _lines(inline: str) -> bytes:
    """PEM as a setting has it: its line breaks may be written as \\n or as blanks, as in Kafka."""
    text = inline.replace("\\n", "\n")
    lines: list[str] = []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("-----BEGIN ") and line.count("-----") > 2:
            lines += _unfolded(line)
        else:
            lines.append(line)
    return "\n".join(lines).encode()


def _unfolded(line: str) -> list[str]:
    """PEM on one line, with blanks in place of line breaks."""
    parts = [part.strip() for part in line.split("-----")]
    # Without its markers: "", "BEGIN X", body, "END X", "", "BEGIN X", ...
    lines = []
    for part in parts:
        if part.startswith(("BEGIN ", "END ")):
            lines.append(f"-----{part}-----")
        elif part:
            lines += part.split()
    return lines


def _pkcs12(content: bytes, password: str | None, name: str, path: str) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise StoreError(
            f"{name}={path!r} is in the format PKCS12, for which the package cryptography is missing: "
            "install holdfast-log[tls], or use PEM"
        ) from None
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        text = str(error) or "it is damaged"
        raise StoreError(
            f"{name}={path!r} cannot be opened: {text}; check the file, and the password beside it"
        ) from None


def _key_of_pkcs12(content: bytes, password: str | None, path: str) -> KeyStore:
    store = _pkcs12(content, password, "ssl.keystore.location", path)
    if store.key is None or store.cert is None:
        raise StoreError(f"ssl.keystore.location={path!r} has no private key with a certificate")
    from cryptography.hazmat.primitives import serialization

    # Encrypted for the moment in which OpenSSL reads it from a file.
    passing = secrets.token_hex(32)
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(passing.encode()),
    )
    own = [store.cert, *store.additional_certs]
    chain = b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in own)
    return KeyStore(key + chain, passing)


def _certificates_of_pkcs12(content: bytes, password: str | None, path: str) -> str:
    store = _pkcs12(content, password, "ssl.truststore.location", path)
    from cryptography.hazmat.primitives import serialization

    found = [*([] if store.cert is None else [store.cert]), *store.additional_certs]
    if not found:
        raise StoreError(f"ssl.truststore.location={path!r} has no certificates")
    pem = b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in found)
    return pem.decode("ascii")


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content that no other user can read, and that is gone afterwards: OpenSSL
    takes keys from files only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key")
        path, is_named = f"/proc/self/fd/{descriptor}", False
    else:
        descriptor, path = tempfile.mkstemp()
        is_named = True
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield path
    finally:
        os.close(descriptor)
        if is_named:
            os.unlink(path)
