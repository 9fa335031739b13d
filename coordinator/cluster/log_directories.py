"""Reads and writes the record of the log directories that a broker has used."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_log.coordinator.cluster.identity import create_if_missing
from holdfast_log.coordinator.znodes.log_directories import (
    decode_used_directories,
    encode_used_directories,
    log_directories_path,
)
from holdfast_log.coordinator.zookeeper.interface import (
    NoNode,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.sessions import on_any_session


async def read_used_directories(zookeeper: ZooKeeper, broker_id: int) -> dict[str, str]:
    """The directories that a broker has used, id → last path; empty if it has no record. Raises
    `BadZnode`."""
    path = log_directories_path(broker_id)

    async def read(session: ZooKeeperSession) -> dict[str, str]:
        while True:
            try:
                data, _ = await session.get(path)
                return decode_used_directories(path, data)
            except NoNode:
                return {}
            except ZooKeeperConnectionLost:
                continue

    return await on_any_session(zookeeper, read)


async def write_used_directories(zookeeper: ZooKeeper, broker_id: int, used: Mapping[str, str]) -> None:
    """Replace a broker's record, without a version check: a broker id belongs to one process at a time."""
    path, data = log_directories_path(broker_id), encode_used_directories(used)

    async def write(session: ZooKeeperSession) -> None:
        while True:
            try:
                await session.set(path, data)
                return
            except NoNode:
                await create_if_missing(session, path, data)
            except ZooKeeperConnectionLost:
                continue

    await on_any_session(zookeeper, write)
