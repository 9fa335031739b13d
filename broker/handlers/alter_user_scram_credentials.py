"""AlterUserScramCredentials (key 51): set and remove SCRAM credentials of users (KIP-554).

Every broker carries it out. Each broker puts a change into effect when ZooKeeper notifies it. All changes of
a user are made, or none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twisted.internet.defer import Deferred, ensureDeferred, succeed

from holdfast_log.broker.requests.answers import AnswerAbandoned, LongAnswer, LongAnswers
from holdfast_log.broker.requests.audit import log_change, shown
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.security.sasl.users import (
    ScramChange,
    ScramUsers,
    check_user,
    mechanism_of,
    new_credential,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

_CREDENTIAL_BYTES = 32
"""The price of a credential: that of the hashes that are made of it."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a request says of one user."""

    deletions: list[ScramCredentialDeletion] = field(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)


@dataclass(eq=False)
class AlterUserScramCredentialsHandler(
    Handler[AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse]
):
    request = AlterUserScramCredentialsRequest
    users: ScramUsers
    rights: ClusterRights
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: AlterUserScramCredentialsRequest
    ) -> Deferred[AlterUserScramCredentialsResponse]:
        self.rights.check(context, "alter SCRAM credentials")
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """Decide on the changes of all users in turns, and make those of some at a time."""
        with self.answers.begin(context, AlterUserScramCredentialsResponse) as answer:
            decided = [
                (user, await _decided(answer, user, wanted)) for user, wanted in _users(request).items()
            ]
            results = await answer.altered(
                AlterUserScramCredentialsResult, decided, lambda each: self._alter(context, *each)
            )
            return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)

    def _alter(
        self, context: RequestContext, user: str, changes: list[ScramChange] | BrokerError
    ) -> Deferred[AlterUserScramCredentialsResult]:
        if isinstance(changes, BrokerError):
            return succeed(_result(user, changes))
        what = {each.mechanism.sasl_name: _shown(each) for each in changes}

        def answer(error: BrokerError | None) -> AlterUserScramCredentialsResult:
            if error is None:
                log_change(context, "Altered credentials of the user %s: %s", shown(user), shown(what))
            return _result(user, error)

        return self.users.alter(user, changes).addCallback(answer)

    def failed(
        self, context: RequestContext, request: AlterUserScramCredentialsRequest, error: BrokerError
    ) -> AlterUserScramCredentialsResponse:
        results = [_result(user, error) for user in _users(request)]
        return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


def _users(request: AlterUserScramCredentialsRequest) -> dict[str, _Wanted]:
    """What the request says of each user that it names."""
    users: dict[str, _Wanted] = {}
    for deletion in request.deletions:
        users.setdefault(deletion.name, _Wanted()).deletions.append(deletion)
    for upsertion in request.upsertions:
        users.setdefault(upsertion.name, _Wanted()).upsertions.append(upsertion)
    return users


async def _decided(answer: LongAnswer, user: str, wanted: _Wanted) -> list[ScramChange] | BrokerError:
    """The changes of one user, or why there are none."""
    await answer.turn(_CREDENTIAL_BYTES)
    try:
        check_user(user)
        return await _changes(answer, wanted)
    except AnswerAbandoned:
        raise
    except BrokerError as error:
        return error.with_traceback(None)


async def _changes(answer: LongAnswer, wanted: _Wanted) -> list[ScramChange]:
    """The changes of one user. Raises BrokerError."""
    changes = [ScramChange(mechanism_of(each.mechanism), None) for each in wanted.deletions]
    for each in wanted.upsertions:
        await answer.turn(_CREDENTIAL_BYTES)
        mechanism = mechanism_of(each.mechanism)
        salt, salted = bytes(each.salt), bytes(each.salted_password)
        changes.append(ScramChange(mechanism, new_credential(mechanism, salt, salted, each.iterations)))
    if len({each.mechanism for each in changes}) != len(changes):
        raise BrokerError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    return changes


def _shown(change: ScramChange) -> str:
    return "removed" if change.credential is None else f"{change.credential.iterations} iterations"


def _result(user: str, error: BrokerError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
