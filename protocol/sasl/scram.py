"""SCRAM (RFC 5802, RFC 7677): keys, credentials and the four messages. Pure.

A user proves that it knows the password, and the server that it has the user's credential, and neither sends
it. A credential lets a server verify a user; the password cannot be read from it, nor can anybody log in with
it. As in Kafka, names and passwords are used as they are in UTF-8, without SASLprep.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_log.protocol.sasl.mechanisms import SCRAM_SHA_256, SCRAM_SHA_512, SaslError

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384
"""Bounds of Kafka for the iterations of a credential (KIP-554)."""
ITERATIONS_ACCEPTED_MAX = 1_000_000
"""Most iterations for which a caller derives keys, about half a second of work: another server could ask for
hours."""
SALT_BYTES_MAX = 256
SALT_CHARACTERS = 26
"""Length of a salt of Kafka's tools: 130 bits in base 36."""
MESSAGE_BYTES_MAX = 8192
"""Maximum size of a message of SCRAM that is parsed."""

_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>(?:,[A-Za-z]+=[^,\x00]*)*))"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,8}})(?:,[A-Za-z]+=[^,\x00]*)*"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE})(?:,[A-Za-z]+=[^,\x00]*)*),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^,\x00]+)|v=(?P<signature>{_BASE64}))(?:,[A-Za-z]+=[^,\x00]*)*")


class ScramMechanism(enum.IntEnum):
    """A SCRAM mechanism, with its code in KIP-554."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return SCRAM_SHA_256 if self is ScramMechanism.SHA_256 else SCRAM_SHA_512

    @property
    def digest(self) -> str:
        """The name of the hash function, as `hashlib` has it."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def digest_bytes(self) -> int:
        return 32 if self is ScramMechanism.SHA_256 else 64


SCRAM_MECHANISMS: Mapping[str, ScramMechanism] = {each.sasl_name: each for each in ScramMechanism}
"""The SCRAM mechanisms by their SASL names."""


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """What a server keeps of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


# -- keys ----------------------------------------------------------------------------------------------------


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2 of the password: some ms for 4,096 iterations. Only who has the password needs it."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential that belongs to a salted password."""
    stored_key = hashlib.new(mechanism.digest, client_key(mechanism, salted)).digest()
    return ScramCredential(salt, stored_key, server_key(mechanism, salted), iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.digest)


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", mechanism.digest)


def client_proof(mechanism: ScramMechanism, key: bytes, auth_message: bytes) -> bytes:
    """The proof of who has this client key."""
    stored_key = hashlib.new(mechanism.digest, key).digest()
    return _xor(key, hmac.digest(stored_key, auth_message, mechanism.digest))


def is_proof(
    mechanism: ScramMechanism, credential: ScramCredential, auth_message: bytes, proof: bytes
) -> bool:
    """Whether the proof shows that its sender knows the credential's password. Takes the same time either
    way."""
    if len(proof) != mechanism.digest_bytes:
        return False
    signature = hmac.digest(credential.stored_key, auth_message, mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, _xor(proof, signature)).digest()
    return hmac.compare_digest(stored_key, credential.stored_key)


def server_signature(mechanism: ScramMechanism, key: bytes, auth_message: bytes) -> bytes:
    return hmac.digest(key, auth_message, mechanism.digest)


def auth_message(client_first_bare: str, server_first: str, client_final_bare: str) -> bytes:
    """What both sides sign: all that was said before the proof."""
    return f"{client_first_bare},{server_first},{client_final_bare}".encode()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


def new_salt(random: bytes) -> bytes:
    """A salt as Kafka's tools make it, text, from at least `SALT_CHARACTERS` random bytes."""
    return "".join(_BASE36[byte % 36] for byte in random[:SALT_CHARACTERS]).encode()


# -- credentials as text -------------------------------------------------------------------------------------


def encode_credential(credential: ScramCredential) -> str:
    """The credential as Kafka keeps it in ZooKeeper, in /config/users/<user> under the mechanism's name."""
    return (
        f"salt={_text64(credential.salt)},stored_key={_text64(credential.stored_key)},"
        f"server_key={_text64(credential.server_key)},iterations={credential.iterations}"
    )


def decode_credential(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """Decode a credential. Raises SaslError, without a part of it in the text."""
    values = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        if sorted(values) != ["iterations", "salt", "server_key", "stored_key"]:
            raise ValueError
        iterations = int(values["iterations"])
        salt, stored, server = (_bytes64(values[name]) for name in ("salt", "stored_key", "server_key"))
    except ValueError:
        raise SaslError(
            "expected salt=…,stored_key=…,server_key=…,iterations=…, the first three in base64"
        ) from None
    if iterations < 1 or not salt or {len(stored), len(server)} != {mechanism.digest_bytes}:
        raise SaslError(f"its keys are not those of {mechanism.sasl_name}")
    return ScramCredential(salt, stored, server, iterations)


# -- messages ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The caller's first message. `gs2` is its header, about channel binding and whom to act as; `bare` the
    rest, which is signed."""

    gs2: str
    bare: str
    user: str
    nonce: str
    authzid: str | None = None
    extensions: tuple[str, ...] = ()

    @classmethod
    def of(cls, user: str, nonce: str) -> ClientFirst:
        return cls("n,,", f"n={escaped_name(user)},r={nonce}", user, nonce)

    def encode(self) -> bytes:
        return f"{self.gs2}{self.bare}".encode()


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The server's first message: the whole nonce, and what the user's keys are derived with."""

    nonce: str
    salt: bytes
    iterations: int

    def text(self) -> str:
        return f"r={self.nonce},s={_text64(self.salt)},i={self.iterations}"


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The caller's proof. `bare` is what stands before it, which is signed."""

    bare: str
    binding: bytes
    nonce: str
    proof: bytes


def client_final_bare(gs2: str, nonce: str) -> str:
    return f"c={_text64(gs2.encode())},r={nonce}"


def parse_client_first(data: bytes) -> ClientFirst:
    """Raises SaslError."""
    text = _text(data)
    if text.startswith("p="):
        raise SaslError("it wants to bind to a TLS channel (SCRAM-…-PLUS), which is not supported")
    match = _CLIENT_FIRST.fullmatch(text)
    if match is None:
        raise SaslError("its first message is not one of SCRAM")
    authzid = match["authzid"]
    return ClientFirst(
        match["gs2"],
        match["bare"],
        _plain_name(match["user"]),
        match["nonce"],
        None if authzid is None else _plain_name(authzid),
        tuple(part for part in match["extensions"].split(",") if part),
    )


def parse_server_first(data: bytes) -> ServerFirst:
    """Raises SaslError."""
    match = _SERVER_FIRST.fullmatch(_text(data))
    if match is None:
        raise SaslError("its first answer is not one of SCRAM")
    return ServerFirst(match["nonce"], _decoded(match["salt"]), int(match["iterations"]))


def parse_client_final(data: bytes) -> ClientFinal:
    """Raises SaslError."""
    match = _CLIENT_FINAL.fullmatch(_text(data))
    if match is None:
        raise SaslError("its proof is not a message of SCRAM")
    return ClientFinal(match["bare"], _decoded(match["binding"]), match["nonce"], _decoded(match["proof"]))


def parse_server_final(data: bytes) -> bytes:
    """The server's signature. Raises SaslError, also if the server refuses the proof."""
    match = _SERVER_FINAL.fullmatch(_text(data))
    if match is None:
        raise SaslError("its last answer is not one of SCRAM")
    if match["error"] is not None:
        raise SaslError(f"it refused the proof: {match['error'][:100]}")
    return _decoded(match["signature"])


def encode_server_final(signature: bytes) -> bytes:
    return f"v={_text64(signature)}".encode()


def escaped_name(name: str) -> str:
    """A user's name as messages have it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _plain_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(data: bytes) -> str:
    if len(data) > MESSAGE_BYTES_MAX:
        raise SaslError(f"a message of SCRAM has at most {MESSAGE_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SaslError("a message of SCRAM is text in UTF-8") from None


def _text64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decoded(text: str) -> bytes:
    try:
        return _bytes64(text)
    except binascii.Error:
        raise SaslError("a value of its message is not base64") from None
