"""Bugs of SASL: who gets in without proving anything, who is found out, and who stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from holdfast_log.broker.quotas import store
from holdfast_log.broker.security.sasl import gates, scram, users
from holdfast_log.broker.security.sasl.gates import SaslGates, SaslSession
from holdfast_log.broker.security.sasl.machine import Cell, SaslAction, SaslEvent, SaslMachine, SaslState
from holdfast_log.broker.security.sasl.scram import ScramServer
from holdfast_log.broker.security.sasl.users import ScramUsers
from holdfast_log.protocol.sasl import callers
from holdfast_log.protocol.sasl.scram import ScramCredential, ScramMechanism
from tests.sim.mutation import Mutation, Patch


def _in_cell(state: SaslState, event: SaslEvent, cell: Cell) -> Callable[[], Sequence[Patch]]:
    def patches() -> Sequence[Patch]:
        on = SaslMachine.on

        def mutant(self: SaslMachine, happened: SaslEvent) -> SaslAction:
            if (self.state, happened) != (state, event):
                return on(self, happened)
            self.state = cell.next
            return cell.action

        return [(SaslMachine, "on", mutant)]

    return patches


def _judge_no_proof() -> Sequence[Patch]:
    return [(scram, "is_proof", lambda mechanism, credential, signed, proof: True)]


def _admit_decoys() -> Sequence[Patch]:
    begin = ScramServer._begin

    def mutant(self: ScramServer, token: bytes) -> Any:
        challenge = begin(self, token)
        self._credential = self._credential or self._decoy
        return challenge

    return [(ScramServer, "_begin", mutant), (scram, "is_proof", lambda *_: True)]


def _reuse_nonces() -> Sequence[Patch]:
    return [(gates, "new_salt", lambda random: b"always the same".replace(b" ", b""))]


def _forget_the_header() -> Sequence[Patch]:
    parse = scram.parse_client_final

    def mutant(data: bytes) -> Any:
        return replace(parse(data), binding=b"y,,")

    return [(scram, "parse_client_final", mutant)]


def _make_decoys_of_chance() -> Sequence[Patch]:
    drawn = iter(range(1_000_000))

    def mutant(secret: bytes, mechanism: ScramMechanism, user: str, iterations: int) -> ScramCredential:
        return decoy(str(next(drawn)).encode(), mechanism, user, iterations)

    decoy = users.decoy
    return [(users, "decoy", mutant)]


def _change_principals() -> Sequence[Patch]:
    judged = SaslSession._judged

    def mutant(self: SaslSession, outcome: Any) -> Any:
        self._user = None
        return judged(self, outcome)

    return [(SaslSession, "_judged", mutant)]


def _end_no_session() -> Sequence[Patch]:
    return [(SaslSession, "_lifetime_ms", lambda self, outcome: None)]


def _wait_for_ever() -> Sequence[Patch]:
    return [(SaslSession, "_wait", lambda self: None)]


def _count_every_listener() -> Sequence[Patch]:
    return [(SaslGates, "is_broker", lambda self, listener, user: user in self._setup.broker_users)]


def _count_every_user() -> Sequence[Patch]:
    return [(SaslGates, "is_broker", lambda self, listener, user: listener in self._broker_listeners)]


def _replace_the_quotas() -> Sequence[Patch]:
    alter = ScramUsers.alter

    def mutant(self: ScramUsers, user: str, changes: Any) -> Any:
        update = self._dynamic.update
        self._dynamic.update = (  # type: ignore[method-assign]
            lambda kind, name, change: update(kind, name, lambda configs: change({}))
        )
        try:
            return alter(self, user, changes)
        finally:
            self._dynamic.update = update  # type: ignore[method-assign]

    return [(ScramUsers, "alter", mutant)]


def _count_credentials_as_quotas() -> Sequence[Patch]:
    return [(store, "_has_quota", lambda kind, configs: bool(configs))]


def _ask_for_few_iterations() -> Sequence[Patch]:
    return [(callers, "ITERATIONS_MIN", 1)]


_LET_IN = Cell(SaslAction.HANDLE, SaslState.TOKENS)

RARE: tuple[Mutation, ...] = (
    Mutation(
        "request-before-handshake",
        "a client that has not authenticated is served",
        _in_cell(SaslState.NEW, SaslEvent.REQUEST, Cell(SaslAction.HANDLE, SaslState.NEW)),
    ),
    Mutation(
        "request-while-exchanging",
        "a client is served before its token is judged",
        _in_cell(SaslState.TOKENS, SaslEvent.REQUEST, _LET_IN),
    ),
    Mutation("any-scram-proof-taken", "any proof of SCRAM is taken", _judge_no_proof),
    Mutation("decoy-admitted", "a user who does not exist gets in", _admit_decoys),
    Mutation("scram-nonce-reused", "a recorded proof of SCRAM is taken again", _reuse_nonces),
    Mutation("scram-header-forgotten", "the header of SCRAM is not verified", _forget_the_header),
    Mutation("salts-tell-users", "a salt that changes tells that there is no user", _make_decoys_of_chance),
    Mutation("principal-changes", "a connection becomes another user's", _change_principals),
    Mutation("session-never-ends", "a client need not authenticate again", _end_no_session),
    Mutation("login-takes-for-ever", "a client that does not authenticate stays", _wait_for_ever),
    Mutation("broker-user-everywhere", "a broker's user is a broker at any listener", _count_every_listener),
    Mutation("every-user-a-broker", "any user is a broker at the brokers' listener", _count_every_user),
    Mutation("credential-replaces-quotas", "a new password removes the user's quotas", _replace_the_quotas),
    Mutation(
        "credential-counts-as-quota", "users without quotas use up their number", _count_credentials_as_quotas
    ),
    Mutation(
        "few-iterations-accepted", "a client proves itself with few iterations", _ask_for_few_iterations
    ),
)
