"""The cluster's layout in ZooKeeper, its id, and generated broker ids.

Several brokers may run these functions at once, and again after a lost connection: the first one creates the
znodes, the others find them.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from holdfast_log.coordinator.znodes.cluster import (
    BROKER_SEQUENCE,
    CLUSTER_ID,
    decode_cluster_id,
    encode_cluster_id,
)
from holdfast_log.coordinator.znodes.json_values import encode_uuid
from holdfast_log.coordinator.znodes.layout import PERSISTENT_PATHS
from holdfast_log.coordinator.zookeeper.interface import (
    NodeExists,
    NoNode,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.pipelined import results
from holdfast_log.coordinator.zookeeper.sessions import on_any_session


async def create_if_missing(session: ZooKeeperSession, path: str, data: bytes = b"") -> bool:
    """Create a persistent znode and its parents; whether this call created it (or may have)."""
    maybe_made = False
    while True:
        try:
            await session.create(path, data)
            return True
        except NodeExists:
            return maybe_made
        except NoNode:
            await create_if_missing(session, path.rpartition("/")[0])
        except ZooKeeperConnectionLost:
            maybe_made = True


async def prepare_layout(session: ZooKeeperSession) -> None:
    """Create the missing persistent znodes of the layout."""
    paths = PERSISTENT_PATHS
    found = await results([session.exists(path) for path in paths])
    for path, stat in zip(paths, found, strict=True):
        if stat is None:
            await create_if_missing(session, path)


async def cluster_id(zookeeper: ZooKeeper, random_bytes: Callable[[int], bytes]) -> str:
    """The cluster's id; the first broker creates it from 16 random bytes."""

    async def read_or_make(session: ZooKeeperSession) -> str:
        while True:
            try:
                data, _ = await session.get(CLUSTER_ID)
                return decode_cluster_id(data)
            except NoNode:
                made = encode_uuid(UUID(bytes=random_bytes(16), version=4))
                await create_if_missing(session, CLUSTER_ID, encode_cluster_id(made))

    return await on_any_session(zookeeper, read_or_make)


async def generate_broker_id(zookeeper: ZooKeeper, reserved_broker_id_max: int) -> int:
    """Generate a unique broker id above `reserved_broker_id_max`, the largest that operators may configure.

    The number is the version of a znode that every call writes. A lost connection may waste one.
    """

    async def draw(session: ZooKeeperSession) -> int:
        while True:
            try:
                stat = await session.set(BROKER_SEQUENCE, b"")
                return reserved_broker_id_max + stat.version
            except NoNode:
                await create_if_missing(session, BROKER_SEQUENCE)
            except ZooKeeperConnectionLost:
                continue

    return await on_any_session(zookeeper, draw)
