"""What a broker that is about to join its cluster finds in ZooKeeper: the other brokers, and the time."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.coordinator.clock import TimeOfDay
from holdfast_log.coordinator.cluster.identity import create_if_missing
from holdfast_log.coordinator.znodes.brokers import (
    BROKER_IDS,
    BrokerInfo,
    broker_path,
    decode_broker,
    decode_broker_id,
)
from holdfast_log.coordinator.znodes.cluster import CLOCK
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import (
    NoNode,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.pipelined import read_all
from holdfast_log.coordinator.zookeeper.sessions import on_any_session


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """`brokers` are the other registered brokers. `ahead_ms` is by how much this machine's clock is at least
    ahead of that of ZooKeeper's leader, in ms; negative if it is behind."""

    brokers: tuple[BrokerInfo, ...]
    ahead_ms: int


async def look_around(zookeeper: ZooKeeper, own_id: int, date_ms: TimeOfDay) -> Neighbourhood:
    """The neighbourhood of a broker. A registration that cannot be read is left out."""
    brokers = await on_any_session(zookeeper, lambda session: _brokers(session, own_id))
    ahead_ms = await on_any_session(zookeeper, lambda session: _ahead_ms(session, date_ms))
    return Neighbourhood(brokers, ahead_ms)


async def _brokers(session: ZooKeeperSession, own_id: int) -> tuple[BrokerInfo, ...]:
    try:
        names = await session.children(BROKER_IDS)
    except NoNode:
        return ()
    ids = [number for number in map(_id_or_none, names) if number is not None and number != own_id]
    found = await read_all(session, [broker_path(number) for number in ids])
    infos = []
    for number, znode in zip(ids, found, strict=True):
        info = None if znode is None else _info_or_none(number, znode[0])
        if info is not None:
            infos.append(info)
    return tuple(infos)


def _id_or_none(name: str) -> int | None:
    try:
        return decode_broker_id(name)
    except BadZnode:
        return None


def _info_or_none(broker_id: int, data: bytes) -> BrokerInfo | None:
    try:
        return decode_broker(broker_id, data)
    except BadZnode:
        return None


async def _ahead_ms(session: ZooKeeperSession, date_ms: TimeOfDay) -> int:
    """Only a write tells ZooKeeper's time."""
    while True:
        before_ms = date_ms()
        try:
            stat = await session.set(CLOCK, b"")
        except NoNode:
            await create_if_missing(session, CLOCK)
            continue
        except ZooKeeperConnectionLost:
            continue
        if before_ms > stat.modified_ms:
            return before_ms - stat.modified_ms
        return min(0, date_ms() - stat.modified_ms)
