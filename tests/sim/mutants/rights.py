"""Bugs of rights that end, and of names that belong to a principal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from holdfast_log.broker.handlers.fetch import FetchHandler
from holdfast_log.broker.ownership import rules
from holdfast_log.broker.ownership.resources import Requester
from holdfast_log.broker.ownership.revocation import Revocation
from holdfast_log.broker.quotas.precedence import Allowance, QuotaTable
from holdfast_log.broker.replication import fetches
from holdfast_log.broker.replication.fetches import Fetches
from holdfast_log.broker.security.sasl.gates import SaslGates, SaslSession
from holdfast_log.broker.security.sasl.revocation import LoginRevocation
from holdfast_log.coordinator.ownership.records import Grant, Owner
from tests.sim.mutation import Mutation, Patch


def _keep_waiting_fetches() -> Sequence[Patch]:
    def mutant(self: Fetches) -> Iterator[None]:
        for session in self._replicas.sessions.of_consumers():
            session.stir_all()
            yield

    return [(Fetches, "judged_again", mutant)]


def _keep_sessions_asleep() -> Sequence[Patch]:
    def mutant(self: Fetches) -> Iterator[None]:
        for connection_id in self._replicas.readers.owners():
            self._replicas.readers.expire_all_of(connection_id)
            yield

    return [(Fetches, "judged_again", mutant)]


def _sever_gently() -> Sequence[Patch]:
    """Nothing is read any more from the connection, and what waits is answered."""

    def mutant(self: SaslSession) -> None:
        if self._user is not None and self._is_revoked(self._user, self._credential):
            self._connection.hold()

    return [(SaslSession, "judge_again", mutant)]


def _forget_whose_grant() -> Sequence[Patch]:
    owns = Requester.owns

    def mutant(self: Requester, grant: Grant, connection: int | None) -> bool:
        return owns(
            self, replace(grant, owner=replace(grant.owner, principal=self.owner.principal)), connection
        )

    return [(Requester, "owns", mutant)]


def _bind_by_client_id() -> Sequence[Patch]:
    def mutant(self: Owner, client_id: str, principal: str) -> bool:
        if self.writer_client_id is None and self.writer_principal is None:
            return False
        return self.writer_client_id in (None, client_id) and self.writer_principal in (None, principal)

    return [(Owner, "binds", mutant)]


def _count_client_ids_of_all_users_together() -> Sequence[Patch]:
    find = QuotaTable.find

    def mutant(self: QuotaTable, user: str, client_id: str) -> Allowance | None:
        found = find(self, user, client_id)
        return None if found is None else replace(found, bucket=("", found.bucket[1]))

    return [(QuotaTable, "find", mutant)]


RARE: tuple[Mutation, ...] = (
    Mutation(
        "revoked-login-stays",
        "a user whose credential was removed keeps its connections",
        lambda: [(LoginRevocation, "credentials_changed", lambda self: None)],
    ),
    Mutation(
        "revoked-login-admitted",
        "a client gets in by a credential that was removed while it authenticated",
        lambda: [(SaslGates, "is_in_force", lambda self, mechanism, user, credential: True)],
    ),
    Mutation(
        "severed-login-answered",
        "a request that waits is answered although its user was removed",
        _sever_gently,
    ),
    Mutation("revoked-fetch-waits", "a fetch waits on without the right", _keep_waiting_fetches),
    Mutation(
        "revoked-session-silent",
        "a fetch session says nothing of a partition that may not be read any more",
        _keep_sessions_asleep,
    ),
    Mutation(
        "revoked-records-given",
        "a fetch that has waited brings records without the right to them",
        lambda: [(fetches, "_is_denied", lambda may_read, read: False)],
    ),
    Mutation(
        "usual-fetch-unjudged",
        "a fetch in one compiled call brings records without the right to them",
        lambda: [(FetchHandler, "judged_shortcut", lambda self, may: self.shortcut())],
    ),
    Mutation(
        "fetch-unjudged",
        "a fetch that the handler answers brings records without the right to them",
        lambda: [(FetchHandler, "_may_read", lambda self, context: lambda topic: True)],
    ),
    Mutation(
        "revoked-owner-stays",
        "an owner keeps a resource without the right to it",
        lambda: [(Revocation, "_judge_entry", lambda self, resource, entry: None)],
    ),
    Mutation(
        "revoked-claim-waits",
        "a claim waits on without the right to what it claims",
        lambda: [(Revocation, "_judge_connection", lambda self, connection_id, owner, key, group: None)],
    ),
    Mutation(
        "grant-of-any-principal",
        "another principal resumes a grant whose secret it has learnt",
        _forget_whose_grant,
    ),
    Mutation(
        "owner-id-borrowed",
        "a principal claims a resource under the owner id of another who owns it",
        lambda: [(rules, "_another_principals", lambda resource, entry, owner: None)],
    ),
    Mutation(
        "client-id-believed",
        "whoever calls itself as the client that an owner has bound writes as the owner",
        _bind_by_client_id,
    ),
    Mutation(
        "quota-of-another-user",
        "a client uses up the quota of another user by taking its client id",
        _count_client_ids_of_all_users_together,
    ),
)
