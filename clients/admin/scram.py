"""The SCRAM credentials of users (KIP-554). Passwords are not sent: brokers get what is derived from them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.connection.connection import ANY_NODE
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from holdfast_log.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from holdfast_log.protocol.sasl.mechanisms import SCRAM_SHA_512
from holdfast_log.protocol.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_CHARACTERS,
    SCRAM_MECHANISMS,
    ScramMechanism,
    new_salt,
    salted_password,
)


@dataclass(frozen=True, slots=True)
class NewScramCredential:
    """A user's password for a mechanism, in place of the one before. `iterations` are 4096 to 16384."""

    user: str
    password: str = field(repr=False)
    mechanism: str = SCRAM_SHA_512
    iterations: int = ITERATIONS_MIN


@dataclass(frozen=True, slots=True)
class OldScramCredential:
    """A user's credential to remove."""

    user: str
    mechanism: str = SCRAM_SHA_512


def describe_scram_credentials(asking: Asking, users: Iterable[str] | None) -> dict[str, dict[str, int]]:
    """The iterations by user and mechanism; of all users if `users` is None."""
    names = None if users is None else [UserName(name=user) for user in users]
    if names == []:
        return {}
    request = DescribeUserScramCredentialsRequest(users=names)
    response = asking.ask(ANY_NODE, request, lambda answer: [answer.error_code])
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    raise_first((result.user, result.error_code, result.error_message) for result in response.results)
    return {
        result.user: {
            ScramMechanism(info.mechanism).sasl_name: info.iterations for info in result.credential_infos
        }
        for result in response.results
    }


def alter_scram_credentials(
    asking: Asking, changes: Iterable[NewScramCredential | OldScramCredential]
) -> None:
    """Set and remove credentials."""
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[])
    for change in changes:
        mechanism = SCRAM_MECHANISMS.get(change.mechanism)
        if mechanism is None:
            raise error_for(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"{change.mechanism!r} is not allowed: expected {' or '.join(SCRAM_MECHANISMS)}",
            )
        if isinstance(change, OldScramCredential):
            request.deletions.append(ScramCredentialDeletion(name=change.user, mechanism=mechanism))
        else:
            request.upsertions.append(_upsertion(change, mechanism))
    response = asking.ask(ANY_NODE, request, lambda answer: [result.error_code for result in answer.results])
    raise_first((result.user, result.error_code, result.error_message) for result in response.results)


def _upsertion(change: NewScramCredential, mechanism: ScramMechanism) -> ScramCredentialUpsertion:
    if not change.password:
        raise error_for(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{change.user}: the password is empty")
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        raise error_for(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{change.user}: {change.iterations} iterations are not allowed: expected {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX}",
        )
    salt = new_salt(secrets.token_bytes(SALT_CHARACTERS))
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=mechanism,
        iterations=change.iterations,
        salt=salt,
        salted_password=salted_password(mechanism, change.password, salt, change.iterations),
    )
