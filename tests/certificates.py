"""Certificates for tests: an authority that signs what a test asks for, and stores to keep them in."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
BOTH_NAMES = ("localhost", "127.0.0.1")


_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def named(common_name: str, organization: str = "Holdfast tests") -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


@dataclass(frozen=True, slots=True)
class Issued:
    """A key, its certificate and those of the authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    chain: Sequence[x509.Certificate] = ()

    @property
    def certificates_pem(self) -> str:
        each = (self.certificate, *self.chain)
        return "".join(one.public_bytes(serialization.Encoding.PEM).decode() for one in each)

    def key_pem(self, password: str | None = None) -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()

    def write(self, path: Path, password: str | None = None) -> str:
        """Write key and certificates in PEM, and return the path as text."""
        path.write_text(self.key_pem(password) + self.certificates_pem)
        return str(path)

    def write_certificates(self, path: Path) -> str:
        path.write_text(self.certificates_pem)
        return str(path)

    def write_key(self, path: Path, password: str | None = None) -> str:
        path.write_text(self.key_pem(password))
        return str(path)

    def write_pkcs12(self, path: Path, password: str) -> str:
        """Write key and certificates as `keytool` and `openssl pkcs12` do."""
        encryption = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"own", self.key, self.certificate, list(self.chain), encryption
            )
        )
        return str(path)


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "Test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = named(name)
        now = datetime.datetime.now(datetime.UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 30 * DAY)
            .not_valid_after(now + 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def write(self, path: Path) -> str:
        """Write the authority's certificate in PEM, and return the path as text."""
        path.write_text(self.pem)
        return str(path)

    def write_pkcs12(self, path: Path, password: str) -> str:
        """Write a trust store as `keytool -importcert` makes it."""
        encryption = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(pkcs12.serialize_java_truststore([_entry(self.certificate)], encryption))
        return str(path)

    def issue(
        self, name: str | x509.Name, hosts: Sequence[str] = (), *, days_left: float = 20, days_old: float = 1
    ) -> Issued:
        """A certificate for `name` and for these hosts. It expires in `days_left`, perhaps in the past."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name) if isinstance(name, str) else name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - days_old * DAY)
            .not_valid_after(now + days_left * DAY)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False
            )
        return Issued(key, builder.sign(self._key, hashes.SHA256()), (self.certificate,))


def _entry(certificate: x509.Certificate) -> pkcs12.PKCS12Certificate:
    return pkcs12.PKCS12Certificate(certificate, b"authority")


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
