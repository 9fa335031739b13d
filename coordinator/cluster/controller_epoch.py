"""Finds the highest controller epoch in partition states, for use when /controller_epoch cannot be read."""

from __future__ import annotations

import contextlib

from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.znodes.topics import (
    TOPICS,
    decode_partition_state,
    partition_state_path,
    partitions_path,
)
from holdfast_log.coordinator.zookeeper.interface import NoNode, ZooKeeperSession
from holdfast_log.coordinator.zookeeper.pipelined import read_all


async def highest_controller_epoch(session: ZooKeeperSession) -> int:
    """The highest epoch of a controller that has written a partition's state; 0 if there is none."""
    highest = 0
    for topic in await session.children(TOPICS):
        numbers: list[int] = []
        with contextlib.suppress(NoNode):
            names = await session.children(partitions_path(topic))
            numbers = [int(name) for name in names if name.isdecimal()]
        found = await read_all(session, [partition_state_path(topic, number) for number in numbers])
        for number, there in zip(numbers, found, strict=True):
            if there is not None:
                with contextlib.suppress(BadZnode):
                    state = decode_partition_state(topic, number, there[0])
                    highest = max(highest, state.controller_epoch)
    return highest
