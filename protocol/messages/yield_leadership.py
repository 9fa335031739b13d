"""YieldLeadership: the controller asks a leader to stop confirming ownership before it moves the leadership.

Holdfast's own, between brokers. A leader that has yielded a partition confirms nothing that only the current
leader may confirm. It serves ordinary writes and reads as before.
"""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct

YIELDED_MAX = 1000
"""The most partitions that the controller names in one request."""


@struct
class YieldedPartition:
    """A partition and the leader epoch that it speaks of. With `is_yielded` False the leader may confirm
    again."""

    partition: Int32
    leader_epoch: Int32
    is_yielded: bool = True


@struct
class YieldedTopic:
    topic_id: UUID
    partitions: list[YieldedPartition]


@struct
class YieldLeadershipResponse(Response):
    """Without an error the broker has done as asked for all partitions."""

    error_code: Int16


@request(key=30030, versions="0", flexible="0+", internal=True)
class YieldLeadershipRequest(Request[YieldLeadershipResponse]):
    """`number` grows with each request of a controller's term: a broker ignores an older request that
    arrives late."""

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    number: Int64
    topics: list[YieldedTopic]
