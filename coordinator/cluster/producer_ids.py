"""Producer ids: unique numbers for the producers of the cluster.

A broker reserves a block of 1000 at a time by compare-and-set on one znode (Kafka's layout), and assigns them
from memory. The rest of a block is lost when the broker stops; there are 2^63 ids.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.cluster.identity import create_if_missing
from holdfast_log.coordinator.znodes.cluster import (
    PRODUCER_ID_BLOCK,
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import (
    BadVersion,
    NoNode,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.sessions import on_any_session

BLOCK_SIZE = 1000
_ID_MAX = 2**63 - 1
_log = logging.getLogger(__name__)


class ProducerIdsExhausted(Exception):
    """All 2^63 producer ids have been assigned."""


class ProducerIds:
    """Assigns producer ids. One block is fetched at a time, however many callers wait. `reserved` is called
    with the id after each block that was fetched."""

    def __init__(
        self, zookeeper: ZooKeeper, broker_id: int, reserved: Callable[[int], None] = lambda end: None
    ) -> None:
        self._zookeeper = zookeeper
        self._reserved = reserved
        self._broker_id = broker_id
        self._next_id = 0
        self._last_id = -1
        self._waiting: deque[Deferred[int]] = deque()
        self._fetching = False
        self._unreadable = b""
        """The znode's last unreadable data that was logged."""

    def next(self) -> Deferred[int]:
        """Fires with a new producer id. Fails with `ZooKeeperError` or `BadZnode` if no block can be
        reserved."""
        wanted: Deferred[int] = Deferred()
        self._waiting.append(wanted)
        self._serve()
        return wanted

    def _serve(self) -> None:
        while self._waiting and self._next_id <= self._last_id:
            given = self._next_id
            self._next_id += 1
            self._waiting.popleft().callback(given)
        if self._waiting and not self._fetching:
            self._fetching = True
            fetched = ensureDeferred(on_any_session(self._zookeeper, self._take_block))
            fetched.addCallbacks(self._fetched, self._failed)

    def _fetched(self, block: ProducerIdBlock) -> None:
        self._fetching = False
        self._next_id, self._last_id = block.first, block.last
        self._reserved(block.last + 1)
        self._serve()

    def _failed(self, failure: Failure) -> None:
        self._fetching = False
        waiting, self._waiting = self._waiting, deque()
        for wanted in waiting:
            wanted.errback(failure)

    async def _take_block(self, session: ZooKeeperSession) -> ProducerIdBlock:
        while True:
            try:
                data, stat = await session.get(PRODUCER_ID_BLOCK)
            except NoNode:
                await create_if_missing(session, PRODUCER_ID_BLOCK)
                continue
            first = self._first_free(data)
            if first > _ID_MAX - BLOCK_SIZE:
                raise ProducerIdsExhausted(f"the last block of producer ids ended at {first - 1}")
            block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
            try:
                await session.set(PRODUCER_ID_BLOCK, encode_producer_id_block(block), stat.version)
                return block
            except (BadVersion, ZooKeeperConnectionLost):
                continue  # Another broker was first, or this block is lost, which is harmless.

    def _first_free(self, data: bytes) -> int:
        """The first id after the last block. Raises `BadZnode`, which is logged once for the same data."""
        if not data:
            return 0
        try:
            return decode_producer_id_block(data).last + 1
        except BadZnode as error:
            if data != self._unreadable:
                self._unreadable = data
                _log.error(
                    "No producer id can be assigned, since one might be assigned twice: %s. Write a block "
                    "there that ends above all ids in use",
                    error,
                )
            raise
