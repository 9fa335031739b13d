"""One log line for each change that a client makes: to topics, settings, leaders or replicas, and by whom;
and for what clients were denied.

The logger is `holdfast_log.broker.requests.audit`. If a broker creates a topic for one of its clients, the
line names that client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.configs import ResourceType

_log = logging.getLogger(__name__)

DENIED_PER_CONNECTION_MAX = 100
"""Maximum number of denied operations that are remembered for a connection; further ones are not logged."""

DENIED_LINES_MAX = 50
"""Maximum number of lines about denied operations in `DENIED_INTERVAL_S`; further ones are counted."""

DENIED_INTERVAL_S = 10.0

_SHOWN_CLIENT_ID = 100
_SHOWN_VALUES = 500


def log_change(
    context: RequestContext, what: str, *arguments: object, on_behalf_of: str | None = None
) -> None:
    """Log a change that is done. `what` is a sentence without its full stop, a format of `arguments`.
    `on_behalf_of` is the client for which a broker has asked, by its `requester_of`: the line names it in
    place of the broker. What another client says there has no effect."""
    requester = requester_of(context)
    if on_behalf_of is not None and context.is_broker:
        requester = _in_one_line(on_behalf_of)
    _log.info(what + ", by %s", *arguments, requester)


def log_altered(
    context: RequestContext, resource_type: int, name: str, configs: Mapping[str, str | None]
) -> None:
    """Log altered settings, with their new values; None stands for the default. `resource_type` is one of
    `ResourceType`."""
    is_topic = resource_type == ResourceType.TOPIC
    resource = f"topic {name}" if is_topic else f"broker {name}" if name else "all brokers"
    if resource_type == ResourceType.BROKER_LOGGER:
        resource = f"the loggers of broker {name}"
    log_change(context, "Altered settings of %s: %s", resource, shown(dict(configs)))


def shown(values: object) -> str:
    """Text from clients, quoted and shortened, so that it can neither end the line nor fill the log."""
    text = repr(values)
    return text if len(text) <= _SHOWN_VALUES else text[:_SHOWN_VALUES] + "…"


def requester_of(context: RequestContext) -> str:
    """Principal, client id and address of the sender of a request."""
    connection = context.connection
    return "this broker" if connection is None else _client(connection, context.client_id)


def _in_one_line(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text[:_SHOWN_VALUES])


def _client(connection: ServerConnection, client_id: str) -> str:
    return f"{connection.principal}, client {client_id[:_SHOWN_CLIENT_ID]!r}, at {connection.peer.host}"


class Denials:
    """Logs denied operations: one line for each connection, operation and resource.

    All connections together get `DENIED_LINES_MAX` lines in `DENIED_INTERVAL_S`; `log` counts what is beyond,
    and logs the number. `clock_s` is the clock of the connections, in seconds.
    """

    def __init__(self, log: RepeatedLog, clock_s: Callable[[], float]) -> None:
        self._repeated = log
        self._clock_s = clock_s
        self._noted: dict[int, set[int]] = {}
        """Hashes of what was logged, by connection: names may be long."""
        self._lines = 0
        self._until_s = 0.0

    def note(
        self, connection: ServerConnection, operation: AclOperation, resource: AclResource, name: str
    ) -> None:
        """Log that the operation was denied, unless that was logged for this connection."""
        if connection.is_closed:
            return
        noted = self._noted.get(connection.id)
        if noted is None:
            noted = self._noted[connection.id] = set()
            connection.add_close_callback(self._forget)
        what = hash((operation, resource, name))
        if what in noted or len(noted) >= DENIED_PER_CONNECTION_MAX:
            return
        noted.add(what)
        text = "Denied %s of the %s %s to %s"
        kind = resource.name.lower().replace("_", " ")
        arguments = operation.name, kind, shown(name), _client(connection, connection.client_id)
        if self._has_room():
            _log.info(text, *arguments)
        else:
            self._repeated.info(_log, "denied operations", text, *arguments)

    def _has_room(self) -> bool:
        now_s = self._clock_s()
        if now_s >= self._until_s:
            self._lines, self._until_s = 0, now_s + DENIED_INTERVAL_S
        self._lines += 1
        return self._lines <= DENIED_LINES_MAX

    def _forget(self, connection: ServerConnection) -> None:
        self._noted.pop(connection.id, None)
