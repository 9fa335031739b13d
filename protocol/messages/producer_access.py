"""Exclusive producers (PIP-68): a producer says how it wants to share a partition with others."""

from __future__ import annotations

import enum

from protocol.api import Request, Response, request
from protocol.messages.ownership import NOT_ADVERTISED, LossReason
from protocol.schema import Int8, Int16, Int32, Int64, struct, wire

FEATURE = "holdfast.producer.access"


class ProducerAccessMode(enum.IntEnum):
    """PIP-68's modes, and the one that Pulsar has added since."""

    SHARED = 0
    """By default several producers can publish."""
    EXCLUSIVE = 1
    """Fail at once where there already is a producer."""
    WAIT_FOR_EXCLUSIVE = 2
    """Wait until exclusive access can be had."""
    EXCLUSIVE_WITH_FENCING = 3
    """Take it: the producers that there are, are fenced."""


@struct
class ProducerAccessResponse(Response):
    """0: the access is granted, under `epoch` (-1 for Shared). CLAIM_QUEUED: it is waited for, at `position`;
    Renew, with the empty group, tells what becomes of it. PRODUCER_FENCED: for this producer it is over.

    The other fields are those of `ownership.ResourceStanding`, the topic epoch being its generation, and
    `reason` told with PRODUCER_FENCED.
    """

    error_code: Int16
    error_message: str | None = None
    epoch: Int64 = -1
    incarnation: Int64 = -1
    fence_offset: Int64 = -1
    leader_epoch: Int32 = -1
    position: Int32 = 0
    owner_id: str | None = None
    owner_client_id: str | None = None
    owner_host: str | None = None
    owner_since_ms: Int64 = -1
    reason: Int8 = LossReason.NONE


@request(key=30026, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class ProducerAccessRequest(Request[ProducerAccessResponse]):
    """To the partition's leader. A producer of a topic with several partitions asks for them in their order,
    so that two that wait for the same partitions never wait for each other.

    `epoch` is empty (-1) the first time; a producer that reconnects names the one it was given. `producer_id`
    is unique to the producer, and stays over reconnects. `wait_timeout_ms` is how long to stand in the queue.
    The other fields are those of OwnRequest; Renew and Release take `producer_id` for `owner_id`.
    """

    topic: str
    partition: Int32
    producer_id: str
    mode: Int8
    epoch: Int64 = -1
    session_timeout_ms: Int32
    timeout_ms: Int32
    wait_timeout_ms: Int32 = 0
    writer_client_id: str | None = wire(default=None, tag=0)
    writer_principal: str | None = wire(default=None, tag=1)
