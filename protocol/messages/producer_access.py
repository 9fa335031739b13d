"""Exclusive producers (PIP-68): a producer requests shared or exclusive access to a partition."""

from __future__ import annotations

import enum

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.ownership import NOT_ADVERTISED, LossReason
from holdfast_log.protocol.schema import Int8, Int16, Int32, Int64, struct, wire

FEATURE = "holdfast.producer.access"


class ProducerAccessMode(enum.IntEnum):
    """PIP-68's modes; EXCLUSIVE_WITH_FENCING was added to Pulsar later."""

    SHARED = 0
    """Several producers may write."""
    EXCLUSIVE = 1
    """Fail at once if there is a producer already."""
    WAIT_FOR_EXCLUSIVE = 2
    """Wait until exclusive access is available."""
    EXCLUSIVE_WITH_FENCING = 3
    """Take exclusive access, and fence the present producers."""


@struct
class ProducerAccessResponse(Response):
    """The outcome of a request for access.

    0: access is granted, with `epoch` (-1 for Shared). CLAIM_QUEUED: the producer waits at `position`; Renew,
    with the empty group, returns its standing. PRODUCER_FENCED: the producer has lost its access for good,
    and `reason` is how. `partition_count` is how many partitions the topic had after a grant of a whole topic
    (`covers_topic`) was durable: the producer has to be granted all of them; -1: not said. The other fields
    are those of `ownership.ResourceStanding`; the topic epoch is its generation.
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
    partition_count: Int32 = wire(default=-1, tag=0)


@request(key=30026, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class ProducerAccessRequest(Request[ProducerAccessResponse]):
    """Requests access to a partition from its leader.

    A producer of a topic with several partitions requests them in ascending order: then two producers never
    wait for each other. `epoch` is -1 the first time; a producer that reconnects names the epoch that it was
    given. `producer_id` is unique to the producer, and the same after a reconnect. `wait_timeout_ms` is how
    long to wait in the queue. The other fields are those of OwnRequest; in Renew and Release, `producer_id`
    is the `owner_id`.

    With `covers_topic` the producer requests all partitions of the topic, one after the other from partition
    0 on, and those that will be added while it owns partition 0: nobody else may write to them. It needs a
    `secret`, by which their leaders know the producer, and has no effect in the mode SHARED.
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
    secret: bytes = wire(tag=2)
    covers_topic: bool = wire(default=False, tag=3)
    waited_ms: Int32 = wire(default=0, tag=4, ignorable=True)
