"""The secret with which all brokers of a cluster make the same decoys for users that do not exist (SCRAM)."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.coordinator.cluster.identity import create_if_missing
from holdfast_log.coordinator.znodes.cluster import SASL_SECRET, decode_secret, encode_secret
from holdfast_log.coordinator.zookeeper.interface import NoNode, ZooKeeper, ZooKeeperSession
from holdfast_log.coordinator.zookeeper.sessions import on_any_session

_SECRET_BYTES = 32


async def sasl_secret(zookeeper: ZooKeeper, random_bytes: Callable[[int], bytes]) -> bytes:
    """The cluster's secret; the first broker that wants it creates it."""

    async def read_or_make(session: ZooKeeperSession) -> bytes:
        while True:
            try:
                data, _ = await session.get(SASL_SECRET)
                return decode_secret(data)
            except NoNode:
                await create_if_missing(session, SASL_SECRET, encode_secret(random_bytes(_SECRET_BYTES)))

    return await on_any_session(zookeeper, read_or_make)
