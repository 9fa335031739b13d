"""Names of certificates as Java writes them, and the rules that make principals of them."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from holdfast_log.broker.network.tls.certificates import subject_name
from holdfast_log.broker.network.tls.principals import NoRule, PrincipalMapper, check_rules
from tests.certificates import Authority, named

AUTHORITY = Authority()


def name_of(subject: x509.Name) -> str:
    return subject_name(AUTHORITY.issue(subject).certificate.public_bytes(Encoding.DER))


def attribute(oid: x509.ObjectIdentifier, value: str, kind: _ASN1Type | None = None) -> x509.NameAttribute:
    return x509.NameAttribute(oid, value, kind)


def test_the_last_part_of_a_name_comes_first() -> None:
    assert name_of(named("kafka-client", "Acme")) == "CN=kafka-client,O=Acme,C=DE"


def test_every_keyword_of_rfc_2253_is_known() -> None:
    subject = x509.Name(
        [
            attribute(NameOID.DOMAIN_COMPONENT, "org"),
            attribute(NameOID.USER_ID, "ann"),
            attribute(NameOID.COMMON_NAME, "Ann"),
            attribute(NameOID.STREET_ADDRESS, "1 Main St"),
            attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Ops"),
            attribute(NameOID.LOCALITY_NAME, "Berlin"),
            attribute(NameOID.STATE_OR_PROVINCE_NAME, "BE"),
        ]
    )

    assert name_of(subject) == "ST=BE,L=Berlin,OU=Ops,STREET=1 Main St,CN=Ann,UID=ann,DC=org"


def test_another_attribute_is_shown_by_its_number_and_its_bytes() -> None:
    subject = x509.Name(
        [attribute(NameOID.COMMON_NAME, "Ann"), attribute(NameOID.EMAIL_ADDRESS, "a@example.org")]
    )

    assert name_of(subject) == "1.2.840.113549.1.9.1=#160d61406578616d706c652e6f7267,CN=Ann"


def test_characters_with_a_meaning_are_escaped() -> None:
    subject = x509.Name([attribute(NameOID.COMMON_NAME, ' a,b+"c"=<d>;\\#e ')])

    assert name_of(subject) == 'CN=\\ a\\,b\\+\\"c\\"\\=\\<d\\>\\;\\\\\\#e\\ '


def test_a_part_with_two_attributes_joins_them() -> None:
    part = x509.RelativeDistinguishedName(
        [attribute(NameOID.COMMON_NAME, "Ann"), attribute(NameOID.USER_ID, "7")]
    )
    subject = x509.Name([x509.RelativeDistinguishedName([attribute(NameOID.COUNTRY_NAME, "DE")]), part])

    assert name_of(subject) in ("CN=Ann+UID=7,C=DE", "UID=7+CN=Ann,C=DE")


def test_letters_beyond_ascii_stay_as_they_are() -> None:
    subject = x509.Name([attribute(NameOID.COMMON_NAME, "Zoë", _ASN1Type.BMPString)])

    assert name_of(subject) == "CN=Zoë"
    assert name_of(x509.Name([attribute(NameOID.COMMON_NAME, "Zoë Ωmega")])) == "CN=Zoë Ωmega"


def test_a_certificate_without_a_subject_has_an_empty_name() -> None:
    assert name_of(x509.Name([])) == ""


def test_truncated_certificates_are_refused() -> None:
    whole = AUTHORITY.issue("Ann").certificate.public_bytes(Encoding.DER)

    for size in range(1, len(whole)):
        with pytest.raises(ValueError):
            subject_name(whole[:size])


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=Ann,O=Acme", "User:CN=Ann,O=Acme"),
        ("RULE:^CN=(.*?),O=.*$/$1/", "CN=Ann,O=Acme", "User:Ann"),
        ("RULE:^CN=(.*?),O=(.*)$/$1@$2/L", "CN=Ann,O=Acme", "User:ann@acme"),
        ("RULE:^CN=(.*?),O=(.*)$/$1@$2/U", "CN=Ann,O=Acme", "User:ANN@ACME"),
        ("RULE:^OU=(.*)$/$1/,RULE:^CN=([^,]+).*$/$1/ , DEFAULT", "CN=Ann,O=Acme", "User:Ann"),
        ("RULE:^OU=(.*)$/$1/, DEFAULT", "CN=Ann", "User:CN=Ann"),
        ("RULE:^CN=(.*)$/$1@$2/", "CN=Ann", "User:Ann@$2"),
        ("RULE:^CN=(.*)$/$12/", "CN=Ann", "User:Ann2"),
        (r"RULE:^CN=(\w+)\/(\w+)$/$1\/$2/", "CN=kafka/h1", "User:kafka/h1"),
        ("RULE:^CN=(.*)$/$0/", "CN=Ann", "User:CN=Ann"),
    ],
)
def test_the_first_rule_that_fits_makes_the_principal(rules: str, name: str, principal: str) -> None:
    assert PrincipalMapper(rules).principal(name) == principal


def test_a_name_that_no_rule_fits_has_no_principal() -> None:
    with pytest.raises(NoRule):
        PrincipalMapper("RULE:^OU=(.*)$/$1/").principal("CN=Ann")


@pytest.mark.parametrize("rules", ["", "RULE:x", "DEFAULTS", "RULE:a/b", "RULE:(/x/", "RULE:a/b/X"])
def test_text_that_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError):
        check_rules(rules)
