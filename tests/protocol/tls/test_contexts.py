"""Contexts made from settings, key stores in each form, and cipher suites by their names."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.network.tls.certificates import certificates_in, expiry_s, subject_name
from holdfast_log.broker.network.tls.settings import SETTINGS
from holdfast_log.clients.settings import Settings
from holdfast_log.protocol.tls.ciphers import openssl_name
from holdfast_log.protocol.tls.contexts import TlsError, accepting_context, connecting_context
from holdfast_log.protocol.tls.stores import StoreError, read_stores
from tests.certificates import BOTH_NAMES, Authority, Issued

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("broker", BOTH_NAMES)
PASSWORD = "a password"


def settings(**given: str) -> Settings:
    """Names of settings have _ in place of dots."""
    return Settings(SETTINGS, {name.replace("_", "."): value for name, value in given.items()})


def accepting(**given: str) -> ssl.SSLContext:
    chosen = settings(**given)
    return accepting_context(chosen, read_stores(chosen))


def speak(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Make a handshake in memory. Returns the suite that was chosen; raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends: tuple[Any, ...] = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = set(ends)
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
                waiting.discard(end)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            return str(ends[0].cipher()[0])
    raise AssertionError("the handshake did not end")


def client() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=AUTHORITY.pem)


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_a_key_store_in_pem_is_used(tmp_path: Path, password: str | None) -> None:
    path = BROKER.write(tmp_path / "store", password)

    more = {} if password is None else {"ssl_key_password": password}
    assert speak(accepting(ssl_keystore_location=path, ssl_keystore_type="PEM", **more), client())


@pytest.mark.parametrize("kind", [None, "PKCS12", "JKS"])
def test_a_key_store_in_pkcs12_is_used(tmp_path: Path, kind: str | None) -> None:
    path = BROKER.write_pkcs12(tmp_path / "store", PASSWORD)

    more = {} if kind is None else {"ssl_keystore_type": kind}
    assert speak(accepting(ssl_keystore_location=path, ssl_keystore_password=PASSWORD, **more), client())


def test_keytools_stores_are_used(tmp_path: Path) -> None:
    keytool = shutil.which("keytool")
    if keytool is None:
        pytest.skip("no keytool on this machine")
    key, trust = tmp_path / "key.jks", tmp_path / "trust.jks"
    base = [keytool, "-storepass", PASSWORD, "-alias", "own"]
    subject = ["-dname", "CN=localhost,O=Acme", "-ext", "san=dns:localhost", "-keyalg", "EC"]
    for arguments in (
        ["-genkeypair", "-keystore", str(key), *subject],
        ["-exportcert", "-keystore", str(key), "-file", str(tmp_path / "own.der")],
        ["-importcert", "-noprompt", "-keystore", str(trust), "-file", str(tmp_path / "own.der")],
    ):
        subprocess.run([*base[:1], *arguments, *base[1:]], check=True, capture_output=True, timeout=300)
    trusting = settings(ssl_truststore_location=str(trust), ssl_truststore_password=PASSWORD)

    server = accepting(ssl_keystore_location=str(key), ssl_keystore_password=PASSWORD)

    assert speak(server, connecting_context(trusting, read_stores(trusting)))


@pytest.mark.parametrize("separator", ["\n", "\\n", " "])
def test_key_and_certificates_may_be_in_the_settings(separator: str) -> None:
    inline = {
        "ssl_keystore_key": BROKER.key_pem().strip().replace("\n", separator),
        "ssl_keystore_certificate_chain": BROKER.certificates_pem.strip().replace("\n", separator),
        "ssl_truststore_certificates": AUTHORITY.pem.strip().replace("\n", separator),
        "ssl_client_auth": "required",
    }

    server = accepting(**inline)

    showing = client()
    with pytest.raises(ssl.SSLError, match="certificate"):
        showing.maximum_version = ssl.TLSVersion.TLSv1_2
        speak(server, showing)
    trusting = settings(**inline)
    assert speak(server, connecting_context(trusting, read_stores(trusting)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "ssl.keystore.location is missing"),
        ({"ssl_keystore_location": "{missing}"}, "cannot be read: No such file"),
        ({"ssl_keystore_location": "{empty}"}, "cannot be opened"),
        ({"ssl_keystore_location": "{jks}"}, "keytool -importkeystore"),
        ({"ssl_keystore_location": "{p12}", "ssl_keystore_type": "PEM"}, "is not of that type"),
        ({"ssl_keystore_location": "{p12}", "ssl_keystore_password": "wrong"}, "cannot be opened"),
        ({"ssl_keystore_location": "{locked}"}, "ssl.key.password is not its password"),
        ({"ssl_keystore_location": "{other}"}, "no private key that fits"),
        ({"ssl_keystore_key": "x"}, "together with ssl.keystore.certificate.chain"),
        ({"ssl_keystore_location": "{pem}", "ssl_client_auth": "required"}, "without ssl.truststore"),
        ({"ssl_keystore_location": "{pem}", "ssl_truststore_location": "{jks}"}, "keytool"),
        ({"ssl_keystore_location": "{pem}", "ssl_truststore_location": "{key}"}, "no certificates"),
        ({"ssl_keystore_location": "{pem}", "ssl_cipher_suites": "NONE_SUCH"}, "no cipher suite NONE_SUCH"),
        (
            {"ssl_keystore_location": "{pem}", "ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"},
            "or none of them",
        ),
        (
            {
                "ssl_keystore_location": "{pem}",
                "ssl_enabled_protocols": "TLSv1.3",
                "ssl_cipher_suites": "ECDHE-ECDSA-AES128-GCM-SHA256",
            },
            "none of the suites is for TLSv1.3",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_words(tmp_path: Path, given: dict[str, str], message: str) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    BROKER.write_pkcs12(tmp_path / "p12", PASSWORD)
    BROKER.write(tmp_path / "pem")
    BROKER.write(tmp_path / "locked", PASSWORD)
    BROKER.write_key(tmp_path / "key")
    Issued(BROKER.key, AUTHORITY.issue("other").certificate).write(tmp_path / "other")
    paths = {name: str(tmp_path / name) for name in ("empty", "jks", "p12", "pem", "locked", "key", "other")}

    with pytest.raises((TlsError, StoreError), match=message) as caught:
        accepting(**{name: value.format(missing="missing", **paths) for name, value in given.items()})
    assert PASSWORD not in str(caught.value) and "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("registered", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ECDHE-ECDSA-AES128-CCM8"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_a_registered_name_is_one_of_openssl(registered: str, openssl: str) -> None:
    assert openssl_name(registered) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(openssl)


def test_suites_of_one_version_leave_that_version_only(tmp_path: Path) -> None:
    path = BROKER.write(tmp_path / "store")
    newest = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"

    server = accepting(ssl_keystore_location=path, ssl_cipher_suites=newest)

    assert server.minimum_version == ssl.TLSVersion.TLSv1_3
    assert str(speak(server, client())).startswith("TLS_")


def test_a_store_does_not_show_its_key() -> None:
    chosen = settings(
        ssl_keystore_key=BROKER.key_pem(), ssl_keystore_certificate_chain=BROKER.certificates_pem
    )

    assert "PRIVATE" not in repr(read_stores(chosen))


def test_a_certificate_says_when_it_expires() -> None:
    (der, *_) = certificates_in(BROKER.certificates_pem)

    assert expiry_s(der) == BROKER.certificate.not_valid_after_utc.timestamp()
    assert subject_name(der) == "CN=broker,O=Holdfast tests,C=DE"


def test_dates_beyond_2049_are_read_too() -> None:
    (der, *_) = certificates_in(AUTHORITY.issue("late", days_left=40 * 365).certificates_pem)

    assert expiry_s(der) > 2**31


def test_nobody_renegotiates_or_compresses() -> None:
    """Either end: a peer that asks for it in TLS 1.2 gets an alert from OpenSSL."""
    inline = {
        "ssl_keystore_key": BROKER.key_pem(),
        "ssl_keystore_certificate_chain": BROKER.certificates_pem,
    }
    chosen = settings(**inline)
    for make in (accepting_context, connecting_context):
        options = make(chosen, read_stores(chosen)).options
        assert options & ssl.OP_NO_RENEGOTIATION and options & ssl.OP_NO_COMPRESSION
