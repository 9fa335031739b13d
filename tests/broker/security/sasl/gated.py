"""A connection to a SASL listener without a socket, with the broker's own dispatcher and handlers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.handlers.api_versions import ApiVersionsHandler
from holdfast_log.broker.handlers.sasl_authenticate import SaslAuthenticateHandler
from holdfast_log.broker.handlers.sasl_handshake import SaslHandshakeHandler
from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.network.endpoints import parse_endpoints
from holdfast_log.broker.network.settings import SETTINGS as NETWORK_SETTINGS
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.security.sasl.gates import SaslGates, SaslLimits
from holdfast_log.broker.security.sasl.listeners import SaslSetup, sasl_setup
from holdfast_log.broker.security.sasl.users import ScramUsers
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.broker.transactions.settings import TransactionVersionSetting
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast_log.protocol.sasl.callers import PlainCaller, SaslCaller, ScramCaller, ScramPasswords
from holdfast_log.protocol.sasl.exchange import sasl_exchange
from holdfast_log.protocol.sasl.scram import (
    SCRAM_MECHANISMS,
    ScramMechanism,
    credential_of,
    encode_credential,
    salted_password,
)
from tests.models.orders import update_metadata
from tests.models.wires import PEER, FakeWire

PLAIN_USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" '
    'password="secret" user_broker="secret" user_alice="hers";'
)
SHA_256, SHA_512 = ScramMechanism
PASSWORDS = {"alice": "wonderland", "carol": "christmas"}
__all__ = ["NETWORK_SETTINGS", "Gated", "plain", "scram", "setup"]


@cache
def setup(**given: str) -> SaslSetup:
    """A broker with the SASL listener CLIENTS and the brokers' own, which wants SASL too."""
    values = {
        "zookeeper.connect": "z:1",
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.brokers.plain.sasl.jaas.config": PLAIN_USERS,
        **{name.replace("__", "-").replace("_", "."): value for name, value in given.items()},
    }
    settings = broker_settings(values)
    return sasl_setup(settings, parse_endpoints(settings, "host"))


@cache
def credentials(password: str, iterations: int = 4096) -> Mapping[str, str]:
    """What ZooKeeper has of a user with this password."""
    found = {}
    for name, mechanism in SCRAM_MECHANISMS.items():
        salted = salted_password(mechanism, password, b"salt of ours", iterations)
        found[name] = encode_credential(credential_of(mechanism, salted, b"salt of ours", iterations))
    return found


def plain(user: str, password: str) -> SaslCaller:
    return PlainCaller(user, password)


def scram(user: str, password: str, mechanism: ScramMechanism = SHA_256) -> SaslCaller:
    return ScramCaller(ScramPasswords(mechanism, user, password))


class Heartbeats(Handler[HeartbeatRequest, HeartbeatResponse]):
    """Any request that is not part of an authentication. Records who sent it."""

    request = HeartbeatRequest

    def __init__(self) -> None:
        self.principals: list[str] = []
        self.waits_for: Deferred[HeartbeatResponse] | None = None

    def handle(
        self, context: RequestContext, request: HeartbeatRequest
    ) -> HeartbeatResponse | Deferred[HeartbeatResponse]:
        self.principals.append(context.principal)
        if self.waits_for is not None:
            return self.waits_for
        return HeartbeatResponse(throttle_time_ms=0, error_code=0)


HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Gated:
    """One broker's gates, and one connection, through which the test talks."""

    def __init__(
        self, listener: str = "CLIENTS", by_user: frozenset[str] = frozenset(("BROKERS",)), **given: str
    ):
        self.clock = Clock()
        self.date_ms = 1_000_000
        self.heartbeats = Heartbeats()
        metadata = MetadataCache()
        metadata.update(update_metadata())
        self.users = ScramUsers(cast(DynamicConfigs, None), 10)
        self.users.secret = b"secret of the cluster"
        for user, password in PASSWORDS.items():
            self.users.configs_changed("users", user, credentials(password))
        limits = SaslLimits(receive_bytes_max=2048, timeout_ms=10_000, failed_delay_ms=100)
        generator = random.Random(1)
        self.gates = SaslGates(
            setup(**given), self.users, by_user, limits, self.clock, lambda: self.date_ms, generator.randbytes
        )
        self.dispatcher = Dispatcher(RepeatedLog(self.clock), clock_s=self.clock.seconds)
        self.dispatcher.add(
            [
                ApiVersionsHandler(
                    self.dispatcher, metadata, FirstUpdate(metadata, self.clock), TransactionVersionSetting(1)
                ),
                SaslHandshakeHandler(self.gates),
                SaslAuthenticateHandler(self.gates),
                self.heartbeats,
            ]
        )
        self._listener = listener
        self._connections = 0
        self.connect()

    def connect(self) -> None:
        """Go on with another connection."""
        self._connections += 1
        self.connection = ServerConnection(
            self._connections,
            self._listener,
            PEER,
            self.dispatcher.dispatch,
            ConnectionLimits(100_000, 100_000, 100),
            self.clock,
        )
        self.gates.guard(self.connection)
        self.wire = FakeWire()
        self.connection.connected(self.wire)

    def receive(self, *frames: bytes) -> None:
        self.connection.frames_received([memoryview(bytearray(frame)) for frame in frames])

    def send(self, request: Request[Any], version: int | None = None) -> None:
        self.receive(encoded(request, version))

    def ask(self, request: Request[Any], version: int | None = None) -> Any:
        """The response to a request; None if there is none now."""
        self.send(request, version)
        frames = list(self.wire.frames())
        version = request.api.max_version if version is None else version
        return decode_response(type(request), version, memoryview(bytearray(frames[0]))) if frames else None

    def log_in(self, caller: SaslCaller) -> int:
        """Carry out an authentication. Returns the lifetime of the session in ms. Raises BrokerError."""
        exchange = sasl_exchange(caller)
        response: Response | None = None
        while True:
            try:
                request = next(exchange) if response is None else exchange.send(response)
            except StopIteration as end:
                return cast(int, end.value)
            self.clock.advance(0)  # Who waits for keys is read again in the next turn.
            response = self.ask(request)
            if response is None:
                self.clock.advance(0.1)
                response = decode_response(
                    type(request), request.api.max_version, memoryview(bytearray(next(self.wire.frames())))
                )

    def refusal(self, caller: SaslCaller) -> BrokerError:
        """The error of an authentication that fails."""
        try:
            self.log_in(caller)
        except BrokerError as error:
            return error
        raise AssertionError("the client was let in")

    def is_let_through(self) -> bool:
        """Whether an ordinary request is answered."""
        if self.connection.is_closed:
            return False
        before = len(self.heartbeats.principals)
        self.ask(HEARTBEAT)
        return len(self.heartbeats.principals) > before


def encoded(request: Request[Any], version: int | None = None) -> bytes:
    """A request as a frame without its size."""
    version = request.api.max_version if version is None else version
    return join_parts(encode_request(request, version, 1, "test"))[SIZE.size :]
