"""AlterUserScramCredentials (key 51): set and remove SCRAM credentials of users (KIP-554).

Every broker carries it out. Each broker puts a change into effect when ZooKeeper notifies it. All changes of
a user are made, or none.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, gatherResults, succeed

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
)


@dataclass(eq=False)
class AlterUserScramCredentialsHandler(
    Handler[AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse]
):
    request = AlterUserScramCredentialsRequest
    users: ScramUsers
    rights: ClusterRights

    def handle(
        self, context: RequestContext, request: AlterUserScramCredentialsRequest
    ) -> Deferred[AlterUserScramCredentialsResponse]:
        self.rights.check(context, "alter SCRAM credentials")
        altered = gatherResults([self._alter(context, request, user) for user in _users(request)])
        return altered.addCallback(
            lambda results: AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)
        )

    def _alter(
        self, context: RequestContext, request: AlterUserScramCredentialsRequest, user: str
    ) -> Deferred[AlterUserScramCredentialsResult]:
        try:
            check_user(user)
            changes = _changes(request, user)
        except BrokerError as error:
            return succeed(_result(user, error))

        def answer(error: BrokerError | None) -> AlterUserScramCredentialsResult:
            if error is None:
                what = {each.mechanism.sasl_name: _shown(each) for each in changes}
                log_change(context, "Altered credentials of the user %s: %s", shown(user), shown(what))
            return _result(user, error)

        return self.users.alter(user, changes).addCallback(answer)

    def failed(
        self, context: RequestContext, request: AlterUserScramCredentialsRequest, error: BrokerError
    ) -> AlterUserScramCredentialsResponse:
        results = [_result(user, error) for user in _users(request)]
        return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


def _users(request: AlterUserScramCredentialsRequest) -> list[str]:
    """The users that the request names, each once."""
    names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    return list(dict.fromkeys(names))


def _changes(request: AlterUserScramCredentialsRequest, user: str) -> list[ScramChange]:
    """The changes of one user. Raises BrokerError."""
    changes = [
        ScramChange(mechanism_of(each.mechanism), None) for each in request.deletions if each.name == user
    ]
    for each in request.upsertions:
        if each.name == user:
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
