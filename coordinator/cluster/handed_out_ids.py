"""Which producer ids this cluster may have handed out: all below the end of the latest block in ZooKeeper.

A broker keeps the end of the latest block that it knows. An id above it may be of a block that another broker
has taken since, so it is refused in a way on which clients try again, while the broker reads the znode.
Nothing waits for that read, so made-up ids hold up no other write.
"""

from __future__ import annotations

from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.znodes.cluster import PRODUCER_ID_BLOCK, decode_producer_id_block
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import NoNode, ZooKeeper, ZooKeeperError, ZooKeeperSession
from holdfast_log.coordinator.zookeeper.sessions import on_any_session
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for

READ_INTERVAL_S = 0.1
"""Minimum time in s between two reads of the znode, however many ids are refused."""
NEAR = 1_000_000
"""Ids by which the end of the latest block may have risen since a read of the last `FRESH_S` seconds."""
FRESH_S = 60.0


class HandedOutIds:
    """The ids that this cluster may have handed out, by what this broker knows of it."""

    def __init__(self, zookeeper: ZooKeeper, clock: Clock) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._end = 0
        """All ids below it may have been handed out."""
        self._read_s: float | None = None
        """When the last read that succeeded began."""
        self._is_reading = False
        self._may_read_at_s = 0.0
        self._is_asked = False
        """Whether an id was refused after the last read had begun."""

    def reserved(self, end: int) -> None:
        """Note that a block of ids that ends before `end` has been reserved."""
        self._end = max(self._end, end)

    def refusal(self, producer_id: int) -> BrokerError | None:
        """Why a producer may not begin to use this id; None if it may."""
        if producer_id < self._end:
            return None
        self._read()
        if producer_id >= self._end + NEAR and self._is_fresh:
            return error_for(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"this cluster has not handed out the producer id {producer_id}, only ids below {self._end}: "
                "ask a broker of this cluster for an id (InitProducerId), or start the producer again",
            )
        return error_for(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this broker does not know yet whether the cluster has handed out producer id {producer_id}: "
            f"it knows ids below {self._end}, and asks ZooKeeper. Try again",
        )

    @property
    def _is_fresh(self) -> bool:
        return self._read_s is not None and self._clock.seconds() - self._read_s < FRESH_S

    def _read(self) -> None:
        """Read the znode now or soon, beginning after this call."""
        if self._is_reading:
            self._is_asked = True
            return
        self._is_reading, self._is_asked = True, False
        delay_s = self._may_read_at_s - self._clock.seconds()
        if delay_s > 0:
            self._clock.callLater(delay_s, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        began_s = self._clock.seconds()
        self._may_read_at_s = began_s + READ_INTERVAL_S
        self._is_asked = False

        def known(end: int) -> None:
            self.reserved(end)
            self._read_s = began_s

        read = ensureDeferred(on_any_session(self._zookeeper, _end_of_latest_block))
        read.addCallbacks(known, _without_answer).addBoth(self._ended)

    def _ended(self, result: object) -> object:
        self._is_reading = False
        if self._is_asked:
            self._read()
        return result


def _without_answer(failure: Failure) -> None:
    """The next id that is refused has the znode read again. `ProducerIds` logs a znode that is unreadable."""
    failure.trap(ZooKeeperError, BadZnode)


async def _end_of_latest_block(session: ZooKeeperSession) -> int:
    try:
        data, _ = await session.get(PRODUCER_ID_BLOCK)
    except NoNode:
        return 0
    return decode_producer_id_block(data).last + 1 if data else 0
