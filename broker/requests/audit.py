"""One log line for each change that a client makes: to topics, settings, leaders or replicas, and by whom.

The logger is `holdfast_log.broker.requests.audit`. If a broker creates a topic for one of its
clients, the line names that broker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.configs import ResourceType

_log = logging.getLogger(__name__)

_SHOWN_CLIENT_ID = 100
_SHOWN_VALUES = 500


def log_change(context: RequestContext, what: str, *arguments: object) -> None:
    """Log a change that is done. `what` is a sentence without its full stop, a format of `arguments`."""
    _log.info(what + ", by %s", *arguments, _requester(context))


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


def _requester(context: RequestContext) -> str:
    """Principal, client id and address of the sender of a request."""
    if context.connection is None:
        return "this broker"
    client = f"client {context.client_id[:_SHOWN_CLIENT_ID]!r}"
    return f"{context.principal}, {client}, at {context.connection.peer.host}"
