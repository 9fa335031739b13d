"""Builds a group session from a consumer's settings."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.fetching.fetcher import Fetcher
from holdfast_log.clients.fetching.record_buffer import RecordBuffer
from holdfast_log.clients.groups.commits import SessionSettings
from holdfast_log.clients.groups.coordinator import GroupCoordinator
from holdfast_log.clients.groups.heartbeats import Heartbeats
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.clients.groups.membership import GroupMembership, OwnerTokens
from holdfast_log.clients.groups.session import GroupSession
from holdfast_log.protocol.assignment import AssignmentStrategy

if TYPE_CHECKING:
    from holdfast_log.clients.groups.attachments import Attachments

_ID_BITS = 64
_UUID_BITS = 128


def build_session(
    settings: Mapping[str, Any],
    connection: Connection,
    fetcher: Fetcher,
    buffer: RecordBuffer,
    listener: RebalanceListener,
    rng: random.Random,
    away: Callable[[], AbstractContextManager[None]],
    tokens: OwnerTokens | None = None,
) -> GroupSession:
    """The session of a consumer with a `group.id`. `away` surrounds calls of the listener, `tokens` are
    those of a consumer that owns its partitions. Raises ConfigError."""
    coordinator = GroupCoordinator(connection, settings["group.id"], settings["retry.backoff.ms"])
    membership: GroupMembership
    attachments = None
    if settings["group.protocol"] == "managed":
        membership, attachments = _managed(settings, coordinator, connection, fetcher, buffer, rng)
    elif settings["group.single.reader"]:
        raise ConfigError(
            "group.single.reader=true needs group.protocol=managed: in other groups the brokers that members "
            "read from do not know which member may read what"
        )
    elif settings["group.protocol"] == "consumer":
        membership = _consumer(settings, coordinator, connection.metadata, rng)
    else:
        membership = _classic(settings, coordinator, connection.metadata)
    session_settings = SessionSettings(
        group_id=settings["group.id"],
        is_auto_commit=settings["enable.auto.commit"],
        auto_commit_interval_ms=settings["auto.commit.interval.ms"],
        session_timeout_ms=settings["session.timeout.ms"],
        is_committed=settings["isolation.level"] == "read_committed",
    )
    now_ms = connection.network.now_ms
    heartbeats = Heartbeats(
        membership, coordinator, now_ms, settings["max.poll.interval.ms"], settings["heartbeat.interval.ms"]
    )
    return GroupSession(
        session_settings,
        now_ms,
        buffer,
        fetcher,
        coordinator,
        membership,
        heartbeats,
        listener,
        connection.events,
        away,
        attachments,
        tokens,
    )


# Each protocol is imported only by the consumers that speak it.


def _classic(
    settings: Mapping[str, Any], coordinator: GroupCoordinator, metadata: Metadata
) -> GroupMembership:
    from holdfast_log.clients.groups.assignor_loading import load_assignors
    from holdfast_log.clients.groups.classic import ClassicMembership
    from holdfast_log.clients.groups.classic_requests import ClassicSettings

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


def _consumer(
    settings: Mapping[str, Any], coordinator: GroupCoordinator, metadata: Metadata, rng: random.Random
) -> GroupMembership:
    from holdfast_log.clients.groups.consumer_member import ConsumerMembership
    from holdfast_log.clients.groups.consumer_requests import ConsumerGroupSettings

    consumer = ConsumerGroupSettings(
        group_id=settings["group.id"],
        instance_id=settings["group.instance.id"],
        rack=settings["client.rack"] or None,
        assignor=settings["group.remote.assignor"] or None,
        session_timeout_ms=settings["session.timeout.ms"],
        rebalance_timeout_ms=settings["max.poll.interval.ms"],
        heartbeat_interval_ms=settings["heartbeat.interval.ms"],
        request_timeout_ms=settings["request.timeout.ms"],
        retry_backoff_ms=settings["retry.backoff.ms"],
    )
    member_id = str(uuid.UUID(int=rng.getrandbits(_UUID_BITS), version=4))
    return ConsumerMembership(consumer, member_id, coordinator, metadata)


def _managed(
    settings: Mapping[str, Any],
    coordinator: GroupCoordinator,
    connection: Connection,
    fetcher: Fetcher,
    buffer: RecordBuffer,
    rng: random.Random,
) -> tuple[GroupMembership, Attachments]:
    from holdfast_log.clients.groups.attachments import Attachments
    from holdfast_log.clients.groups.managed import ManagedMembership
    from holdfast_log.clients.groups.managed_requests import ManagedSettings

    assignor = settings["group.remote.assignor"]
    if assignor not in ("", *AssignmentStrategy):
        raise ConfigError(
            f"group.remote.assignor={assignor} is not one of a managed group: set it to one of "
            f"{', '.join(AssignmentStrategy)}, or leave it out"
        )
    instance_id: str | None = settings["group.instance.id"]
    managed = ManagedSettings(
        group_id=settings["group.id"],
        consumer_id=instance_id or f"{settings['client.id']}-{rng.getrandbits(_ID_BITS):016x}",
        is_static=instance_id is not None,
        session_timeout_ms=settings["session.timeout.ms"],
        rebalance_timeout_ms=settings["max.poll.interval.ms"],
        heartbeat_interval_ms=settings["heartbeat.interval.ms"],
        request_timeout_ms=settings["request.timeout.ms"],
        retry_backoff_ms=settings["retry.backoff.ms"],
        ephemeral=settings["group.ephemeral"],
        assignment_strategy=assignor,
        single_reader=settings["group.single.reader"],
    )
    membership = ManagedMembership(managed, coordinator, connection.metadata)
    attachments = Attachments(
        connection,
        fetcher,
        buffer,
        settings["retry.backoff.ms"],
        identity=lambda: membership.identity,
        doubt=membership.doubt,
    )
    return membership, attachments
