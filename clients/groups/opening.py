"""Puts a group session together from a consumer's settings."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from clients.connection import Connection
from clients.fetcher import Fetcher
from clients.groups.coordinator import Coordinator
from clients.groups.listener import RebalanceListener
from clients.groups.membership import Membership
from clients.groups.reader import Reader
from clients.groups.session import GroupSession, SessionSettings
from clients.metadata import Metadata

_ID_BITS = 64


def open_session(
    settings: Mapping[str, Any],
    connection: Connection,
    fetcher: Fetcher,
    reader: Reader,
    listener: RebalanceListener,
    rng: random.Random,
) -> GroupSession:
    """The session of a consumer with a `group.id`. Raises ConfigError."""
    coordinator = Coordinator(connection, settings["group.id"], settings["retry.backoff.ms"])
    membership: Membership
    if settings["group.protocol"] == "managed":
        membership = _managed(settings, coordinator, connection.metadata, rng)
    else:
        membership = _classic(settings, coordinator, connection.metadata)
    session_settings = SessionSettings(
        group_id=settings["group.id"],
        is_auto_commit=settings["enable.auto.commit"],
        auto_commit_interval_ms=settings["auto.commit.interval.ms"],
        max_poll_interval_ms=settings["max.poll.interval.ms"],
        session_timeout_ms=settings["session.timeout.ms"],
    )
    return GroupSession(
        session_settings, reader, fetcher, coordinator, membership, listener, connection.events
    )


# A consumer speaks one of the protocols, and does not pay for importing the other.


def _classic(settings: Mapping[str, Any], coordinator: Coordinator, metadata: Metadata) -> Membership:
    from clients.groups.assignors import load_assignors
    from clients.groups.classic import ClassicMembership
    from clients.groups.classic_requests import ClassicSettings

    classic = ClassicSettings(
        group_id=settings["group.id"],
        instance_id=settings["group.instance.id"],
        rack=settings["client.rack"] or None,
        session_timeout_ms=settings["session.timeout.ms"],
        rebalance_timeout_ms=settings["max.poll.interval.ms"],
        heartbeat_interval_ms=settings["heartbeat.interval.ms"],
        request_timeout_ms=settings["request.timeout.ms"],
        retry_backoff_ms=settings["retry.backoff.ms"],
        assignors=load_assignors(settings["partition.assignment.strategy"]),
    )
    return ClassicMembership(classic, coordinator, metadata)


def _managed(
    settings: Mapping[str, Any], coordinator: Coordinator, metadata: Metadata, rng: random.Random
) -> Membership:
    from clients.groups.managed import ManagedMembership
    from clients.groups.managed_requests import ManagedSettings

    instance_id: str | None = settings["group.instance.id"]
    managed = ManagedSettings(
        group_id=settings["group.id"],
        consumer_id=instance_id or f"{settings['client.id']}-{rng.getrandbits(_ID_BITS):016x}",
        is_static=instance_id is not None,
        session_timeout_ms=settings["session.timeout.ms"],
        heartbeat_interval_ms=settings["heartbeat.interval.ms"],
        request_timeout_ms=settings["request.timeout.ms"],
        retry_backoff_ms=settings["retry.backoff.ms"],
        ephemeral=settings["group.ephemeral"],
        assignment_strategy=settings["group.remote.assignor"],
    )
    return ManagedMembership(managed, coordinator, metadata)
