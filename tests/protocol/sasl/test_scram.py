"""SCRAM's keys and messages: the example of RFC 7677, and what is refused."""

from __future__ import annotations

import base64

import pytest

from holdfast_log.protocol.sasl.callers import ScramCaller, ScramPasswords
from holdfast_log.protocol.sasl.mechanisms import SaslError
from holdfast_log.protocol.sasl.scram import (
    ClientFirst,
    ScramMechanism,
    auth_message,
    client_key,
    client_proof,
    credential_of,
    decode_credential,
    encode_credential,
    is_proof,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
    salted_password,
)

SHA_256, SHA_512 = ScramMechanism
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def caller(password: str = "pencil") -> ScramCaller:
    return ScramCaller(ScramPasswords(SHA_256, "user", password), NONCE)


def refusal_of(answer: bytes) -> str:
    """Why a caller refuses a server's first answer; empty if it does not."""
    try:
        caller().answered(answer)
    except SaslError as error:
        return str(error)
    return ""


def test_the_example_of_rfc_7677() -> None:
    mine = caller()
    assert mine.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert mine.answered(SERVER_FIRST) == CLIENT_FINAL
    assert mine.answered(SERVER_FINAL) is None


def test_a_server_verifies_the_proof_of_the_example() -> None:
    credential = credential_of(SHA_256, salted_password(SHA_256, "pencil", SALT, 4096), SALT, 4096)
    final = parse_client_final(CLIENT_FINAL)
    signed = auth_message("n=user,r=rOprNGfwEbeRWgbNEkqO", SERVER_FIRST.decode(), final.bare)
    assert is_proof(SHA_256, credential, signed, final.proof)
    assert not is_proof(SHA_256, credential, signed, bytes(32))
    assert not is_proof(SHA_256, credential, signed, final.proof[:-1])
    assert not is_proof(SHA_256, credential, signed + b"x", final.proof)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_proof_fits_the_credential_of_its_password_only(mechanism: ScramMechanism) -> None:
    salted = salted_password(mechanism, "geheim,=", b"salt", 4096)
    other = salted_password(mechanism, "geheim", b"salt", 4096)
    proof = client_proof(mechanism, client_key(mechanism, salted), b"said")
    assert is_proof(mechanism, credential_of(mechanism, salted, b"salt", 4096), b"said", proof)
    assert not is_proof(mechanism, credential_of(mechanism, other, b"salt", 4096), b"said", proof)


def test_a_credential_is_kept_as_in_kafka() -> None:
    credential = credential_of(SHA_256, salted_password(SHA_256, "pencil", SALT, 4096), SALT, 4096)
    text = encode_credential(credential)
    assert text == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert decode_credential(SHA_256, text) == credential
    assert "W22" not in repr(credential)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=AA==",
        "salt=AA==,stored_key=AA==,server_key=AA==,iterations=4096",
        "salt=AA==,stored_key=!,server_key=AA==,iterations=4096",
        "salt=AA==,stored_key=AA==,server_key=AA==,iterations=many",
        "salt=AA==,salt=AA==,stored_key=AA==,server_key=AA==",
    ],
)
def test_a_text_that_is_no_credential_is_refused(text: str) -> None:
    with pytest.raises(SaslError):
        decode_credential(SHA_512, text)


def test_a_name_may_have_the_characters_that_separate() -> None:
    first = ClientFirst.of("a,b=c", "nonce")
    assert first.encode() == b"n,,n=a=2Cb=3Dc,r=nonce"
    assert parse_client_first(first.encode()) == first


def test_a_first_message_may_have_extensions_and_somebody_to_act_as() -> None:
    first = parse_client_first(b"y,a=b=2Cc,n=u,r=x,t=1,k=v w")
    assert (first.gs2, first.authzid, first.user, first.nonce) == ("y,a=b=2Cc,", "b,c", "u", "x")
    assert first.extensions == ("t=1", "k=v w")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=a b",
        b"n,,m=1,n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,,n=us\x00er,r=x",
        b"\xff\xfe",
        b"n,,n=user,r=" + b"x" * 10_000,
    ],
)
def test_a_first_message_of_another_form_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        parse_client_first(message)


@pytest.mark.parametrize("message", [b"", b"c=biws,r=x", b"c=biws,r=x,p=", b"c=,r=x,p=AA==", b"\xff"])
def test_a_proof_of_another_form_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        parse_client_final(message)


@pytest.mark.parametrize("message", [b"", b"r=x,s=,i=4096", b"r=x,s=AA==,i=0", b"r=x,s=AA==,i=-1", b"e=x"])
def test_a_first_answer_of_another_form_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        parse_server_first(message)


def test_the_last_answer_may_be_a_refusal() -> None:
    with pytest.raises(SaslError, match="refused the proof: other-error"):
        parse_server_final(b"e=other-error")


def test_a_caller_refuses_fewer_iterations_than_4096() -> None:
    assert "asks for 4095 iterations" in refusal_of(SERVER_FIRST.replace(b"4096", b"4095"))


def test_a_caller_refuses_iterations_that_would_take_hours() -> None:
    assert "asks for 999999999 iterations" in refusal_of(SERVER_FIRST.replace(b"4096", b"999999999"))


@pytest.mark.parametrize("nonce", [b"other", b"rOprNGfwEbeRWgbNEkqO"])
def test_a_caller_refuses_a_nonce_that_does_not_continue_its_own(nonce: bytes) -> None:
    with pytest.raises(SaslError, match="nonce does not continue"):
        caller().answered(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")


def test_a_caller_refuses_a_server_that_does_not_know_the_user() -> None:
    mine = caller()
    mine.answered(SERVER_FIRST)
    with pytest.raises(SaslError, match="not proved that it knows"):
        mine.answered(b"v=" + base64.b64encode(bytes(32)))


def test_keys_are_derived_once_for_a_salt() -> None:
    passwords = ScramPasswords(SHA_512, "user", "pencil")
    assert passwords.salted(SALT, 4096) is passwords.salted(SALT, 4096)
    assert passwords.salted(SALT, 4096) != passwords.salted(b"other", 4096)


def test_each_connection_has_another_nonce() -> None:
    passwords = ScramPasswords(SHA_256, "user", "pencil")
    assert ScramCaller(passwords).first() != ScramCaller(passwords).first()
