"""What a cluster has once: its layout in ZooKeeper, its id, and the numbers it gives to brokers.

All of it may be done by several brokers at once, and again after a lost connection: the first wins, and the
others find what it has left.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from coordinator.znodes.cluster import BROKER_SEQUENCE, CLUSTER_ID, decode_cluster_id, encode_cluster_id
from coordinator.znodes.json_values import encode_uuid
from coordinator.znodes.layout import PERSISTENT_PATHS
from coordinator.zookeeper.interface import (
    NodeExists,
    NoNode,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)
from coordinator.zookeeper.pipelined import results
from coordinator.zookeeper.sessions import on_any_session


async def create_if_missing(session: ZooKeeperSession, path: str, data: bytes = b"") -> bool:
    """Make a persistent znode, and those above it; whether it was made (or may have been) by this call."""
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
    """Make the persistent znodes that everything else stands in."""
    paths = PERSISTENT_PATHS
    found = await results([session.exists(path) for path in paths])
    for path, stat in zip(paths, found, strict=True):
        if stat is None:
            await create_if_missing(session, path)


async def cluster_id(zookeeper: ZooKeeper, random_bytes: Callable[[int], bytes]) -> str:
    """The cluster's id; the first broker to ask makes it, of 16 random bytes."""

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
    """A broker id that no other broker is given, above those that operators choose themselves.

    The number is the version of a znode that every caller writes. A lost connection may waste one.
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
