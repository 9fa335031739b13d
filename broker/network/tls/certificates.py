"""What is in a certificate: its subject as Java writes it (RFC 2253), and when it expires.

OpenSSL has verified the certificates before; what they say is read here from their DER.
"""

from __future__ import annotations

import datetime
import re
import ssl
from collections.abc import Iterator, Sequence

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_CODECS = {12: "utf-8", 19: "latin-1", 20: "latin-1", 22: "latin-1", 27: "latin-1", 30: "utf-16-be"}
"""The codecs of values that are text, by their tags in DER."""
_ESCAPED = frozenset(',=+<>#;"\\')
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_UTC_TIME = 23
_VERSION = 0xA0


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate in DER, as Java's `X500Principal.getName()` has it: last part first.

    Raises ValueError if the certificate is malformed.
    """
    _, subject = _field(certificate, 4)
    return ",".join(reversed([_part(part) for _, part in _elements(subject)]))


def expiry_s(certificate: bytes) -> float:
    """When a certificate in DER expires, in seconds since the epoch. Raises ValueError."""
    _, validity = _field(certificate, 3)
    times = list(_elements(validity))
    if len(times) != 2:
        raise ValueError("the certificate does not say when it expires")
    tag, text = times[1]
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    date = datetime.datetime.strptime(text.decode("latin-1"), form)
    if tag == _UTC_TIME and date.year >= 2050:
        date = date.replace(year=date.year - 100)
    return date.replace(tzinfo=datetime.UTC).timestamp()


def certificates_in(pem: str) -> Sequence[bytes]:
    """The certificates in a text in PEM, in DER. Raises ValueError."""
    return [ssl.PEM_cert_to_DER_cert(block) for block in _PEM.findall(pem)]


def _field(certificate: bytes, number: int) -> tuple[int, bytes]:
    """A field of what the authority has signed: 3 is the validity, 4 the subject. Before them are serial
    number, algorithm and issuer, and since version 2 a version."""
    try:
        _, body = next(_elements(certificate))
        _, signed = next(_elements(body))
        fields = list(_elements(signed))
        return fields[number + (fields[0][0] == _VERSION)]
    except (StopIteration, IndexError):
        raise ValueError("the certificate is incomplete") from None


def _part(part: bytes) -> str:
    """One part of a name; it may have several attributes."""
    return "+".join(_attribute(attribute) for _, attribute in _elements(part))


def _attribute(attribute: bytes) -> str:
    (_, identifier), (tag, value) = list(_elements(attribute))[:2]
    dotted = _dotted(identifier)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or tag not in _CODECS:
        whole = attribute[len(attribute) - len(value) - _header_bytes(len(value)) :]
        return f"{keyword or dotted}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode(_CODECS[tag]))}"


def _escaped(text: str) -> str:
    escaped = [f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text]
    for position in _outer_blanks(text):
        escaped[position] = "\\" + escaped[position]
    return "".join(escaped)


def _outer_blanks(text: str) -> set[int]:
    leading = len(text) - len(text.lstrip(" \r"))
    trailing = len(text) - len(text.rstrip(" \r"))
    return {*range(leading), *range(len(text) - trailing, len(text))}


def _dotted(identifier: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for octet in identifier:
        number = number << 7 | octet & 0x7F
        if octet & 0x80 == 0:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and the content of each element of DER, one after the other. Raises ValueError."""
    position = 0
    while position < len(data):
        try:
            tag, size = data[position], data[position + 1]
            position += 2
            if size & 0x80:
                count = size & 0x7F
                size = int.from_bytes(data[position : position + count])
                position += count
        except IndexError:
            raise ValueError("an element of DER is incomplete") from None
        if position + size > len(data):
            raise ValueError("an element of DER is longer than what contains it")
        yield tag, data[position : position + size]
        position += size


def _header_bytes(size: int) -> int:
    return 2 if size < 0x80 else 2 + (size.bit_length() + 7) // 8
