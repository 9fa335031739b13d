"""Bugs of how a broker tells other brokers from clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from holdfast_log.broker.handlers import fetch, list_offsets, offset_for_leader_epoch
from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.network.connection_room import Room
from holdfast_log.broker.network.handshake import (
    CallerHandshake,
    CallerState,
    ClusterSecret,
    Handshake,
)
from holdfast_log.broker.network.listener import Listeners
from holdfast_log.broker.network.strangers import Strangers
from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.replication.fetch_sessions import FetchSessions
from holdfast_log.broker.replication.session_partitions import FetchReader
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.for_brokers import ForBrokers
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.broker.wiring.quotas import BROKER_CLIENT_ID
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.messages.authenticate_broker import (
    AuthenticateBrokerRequest,
    AuthenticateBrokerResponse,
)
from tests.sim.mutation import Mutation, Patch


def _obey_everybody() -> Sequence[Patch]:
    def mutant(self: ForBrokers, context: RequestContext, request: Request[Any]) -> Any:
        return self._handler.handle(context, request)

    return [(ForBrokers, "handle", mutant)]


def _believe_replica_ids(module: ModuleType) -> Sequence[Patch]:
    return [(module, "check_replica", lambda context, replica_id: None)]


def _trust_every_listener() -> Sequence[Patch]:
    init = Listeners.__init__

    def mutant(self: Listeners, *given: Any, **named: Any) -> None:
        init(self, *given, **named)
        self._trusted = ("PLAINTEXT", "INTERNAL")

    return [(Listeners, "__init__", mutant)]


def _exempt_by_name() -> Sequence[Patch]:
    init = ClientQuotas.__init__

    def mutant(self: ClientQuotas, limits: Any, settings: Any, clock: Any, is_exempt: Any) -> None:
        init(self, limits, settings, clock, _is_named_so)

    return [(ClientQuotas, "__init__", mutant)]


def _is_named_so(connection: ServerConnection) -> bool:
    return BROKER_CLIENT_ID.fullmatch(connection.client_id) is not None


def _take_any_proof() -> Sequence[Patch]:
    return [(ClusterSecret, "key_of", lambda self, exchange, proof: self.keys[0])]


def _ask_for_no_proof() -> Sequence[Patch]:
    answered = CallerHandshake.answered

    def mutant(
        self: CallerHandshake, response: AuthenticateBrokerResponse
    ) -> AuthenticateBrokerRequest | None:
        if self.state is CallerState.PROVED and not response.error_code:
            self.state = CallerState.DONE
            return None
        return answered(self, response)

    return [(CallerHandshake, "answered", mutant)]


def _prove_without_nonces() -> Sequence[Patch]:
    prove = Handshake._proof

    def mutant(self: Handshake, key: bytes, side: bytes) -> bytes:
        return prove(replace(self, caller_nonce=b"", answerer_nonce=b""), key, side)

    return [(Handshake, "_proof", mutant)]


def _prove_without_side() -> Sequence[Patch]:
    prove = Handshake._proof
    return [(Handshake, "_proof", lambda self, key, side: prove(self, key, b""))]


def _allow_many_attempts() -> Sequence[Patch]:
    begin = ServerConnection.begin_handshake

    def mutant(self: ServerConnection, exchange: Handshake) -> None:
        begin(self, exchange)
        self.has_handshake = False

    return [(ServerConnection, "begin_handshake", mutant)]


def _allow_clients_long_orders() -> Sequence[Patch]:
    add_routes = Dispatcher._add_routes

    def mutant(self: Dispatcher, routes: Any, handler: Any, elements_max: int) -> None:
        is_internal = handler.request.api.internal
        add_routes(self, routes, handler, self._internal_elements_max if is_internal else elements_max)

    return [(Dispatcher, "_add_routes", mutant)]


def _close_any_session() -> Sequence[Patch]:
    def mutant(self: FetchSessions, session_id: int, reader: FetchReader) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.reader.principal == reader.principal:
            self._remove(session)

    return [(FetchSessions, "close", mutant)]


def _close_no_stranger() -> Sequence[Patch]:
    return [(Strangers, "first_to_go", lambda self: None)]


def _close_busy_connections() -> Sequence[Patch]:
    def mutant(self: Strangers, connection: ServerConnection) -> Any:
        return connection.received_requests > 0, connection.last_activity_s, connection.id, connection

    return [(Strangers, "_entry", mutant)]


def _close_the_idle_before_the_silent() -> Sequence[Patch]:
    entry = Strangers._entry

    def mutant(self: Strangers, connection: ServerConnection) -> Any:
        return (True, *entry(self, connection)[1:])

    return [(Strangers, "_entry", mutant)]


def _close_brokers() -> Sequence[Patch]:
    def mutant(self: Strangers) -> ServerConnection | None:
        found = [entry[3] for entry in self._order if not entry[3].is_closed and entry[3].is_idle]
        return min(found, key=lambda connection: connection.last_activity_s, default=None)

    return [(Strangers, "first_to_go", mutant)]


def _keep_no_place() -> Sequence[Patch]:
    init = Room.__init__

    def mutant(self: Room, *given: Any) -> None:
        init(self, *given)
        self._kept = 0

    return [(Room, "__init__", mutant)]


def _give_an_address_everything() -> Sequence[Patch]:
    init = Room.__init__

    def mutant(self: Room, *given: Any) -> None:
        init(self, *given)
        self._per_address_max = self._max

    return [(Room, "__init__", mutant)]


RARE: tuple[Mutation, ...] = (
    Mutation("orders-of-clients", "a broker carries out what a client orders", _obey_everybody),
    Mutation(
        "posing-reader-believed",
        "a client reads as a replica, and its position commits records",
        lambda: _believe_replica_ids(fetch),
    ),
    Mutation(
        "posing-asker-believed",
        "a client gets the offset of records that are not committed",
        lambda: _believe_replica_ids(list_offsets),
    ),
    Mutation(
        "posing-epochs-believed",
        "a client asks for epochs as a replica",
        lambda: _believe_replica_ids(offset_for_leader_epoch),
    ),
    Mutation("every-listener-trusted", "all connections count as brokers'", _trust_every_listener),
    Mutation("exempt-by-name", "a client that is named like a broker has no quotas", _exempt_by_name),
    Mutation("any-proof-taken", "who proves nothing counts as a broker", _take_any_proof),
    Mutation("answerer-unproven", "a broker sends requests to whoever answers", _ask_for_no_proof),
    Mutation("proof-replayed", "a proof that was overheard is worth something", _prove_without_nonces),
    Mutation("proof-reflected", "a broker's own proof is taken for the other's", _prove_without_side),
    Mutation("many-attempts", "a connection may try one proof after the other", _allow_many_attempts),
    Mutation(
        "long-orders-of-clients",
        "a client's request may have as many elements as a controller's",
        _allow_clients_long_orders,
    ),
    Mutation("strangers-stay", "idle strangers keep everybody else out", _close_no_stranger),
    Mutation(
        "busy-connection-closed", "a consumer that waits for records is closed", _close_busy_connections
    ),
    Mutation(
        "silent-connection-outlives",
        "a client that is idle goes before one that has never sent a request",
        _close_the_idle_before_the_silent,
    ),
    Mutation("broker-closed-for-others", "a broker's connection goes for a client's", _close_brokers),
    Mutation("no-place-for-brokers", "clients in use keep brokers out", _keep_no_place),
    Mutation(
        "address-takes-all", "the connections of one address leave no place", _give_an_address_everything
    ),
    Mutation("session-closed-by-client", "a client ends a follower's fetch session", _close_any_session),
)
