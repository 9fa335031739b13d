"""Claims the partitions of a streaming query for one run of it, so that two runs never both read."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Protocol

from holdfast_log.clients.config import ADMIN_ROWS
from holdfast_log.clients.errors import RequestTimeoutError
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.pipeline.cluster import properties_for
from holdfast_log.protocol.errors import OwnershipRefusedError
from holdfast_log.protocol.messages.ownership import Access
from holdfast_log.protocol.topic_partition import TopicPartition

WAIT_MS = 20_000
"""Time for which a run waits for partitions of another one: a killed process keeps them for 10 s."""


class ReaderGroupError(Exception):
    """Another run of a query has the partitions. The message names it."""


class HeldPartitions(Protocol):
    """The methods of a `Lease` on partitions that reading needs."""

    def claim(self) -> None:
        """Wait until the partitions are granted."""
        ...

    def fence(self) -> OwnerFence:
        """What lets tasks read the partitions."""
        ...

    def close(self) -> None:
        """Release the partitions."""
        ...


class ReaderLeases:
    """The partitions that this run holds in a reader group. `lease` makes a lease on some partitions."""

    def __init__(self, group: str, lease: Callable[[Collection[TopicPartition]], HeldPartitions]) -> None:
        self._group = group
        self._lease = lease
        self._leases: list[HeldPartitions] = []
        self._held: dict[TopicPartition, HeldPartitions] = {}

    def fences(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OwnerFence]:
        """Claim the partitions that are not held yet, and return the fence of each.

        Raises ReaderGroupError if another run keeps one for `WAIT_MS`, and the error by which one was lost.
        """
        missing = sorted(set(partitions) - set(self._held))
        if missing:
            self._claim(missing)
        return {partition: self._held[partition].fence() for partition in partitions}

    def _claim(self, partitions: list[TopicPartition]) -> None:
        lease = self._lease(partitions)
        try:
            lease.claim()
        except (OwnershipRefusedError, RequestTimeoutError) as error:
            lease.close()
            names = ", ".join(map(str, partitions))
            raise ReaderGroupError(
                f"another run reads {names} in the reader group {self._group}: {error}"
            ) from None
        except BaseException:
            lease.close()
            raise
        self._leases.append(lease)
        self._held |= dict.fromkeys(partitions, lease)

    def close(self) -> None:
        """Release all partitions."""
        for lease in self._leases:
            lease.close()


def reader_leases(client: Mapping[str, str], group: str) -> ReaderLeases:
    """Leases on a cluster, with properties of a consumer."""
    return ReaderLeases(group, partial(_lease, client, group))


def _lease(client: Mapping[str, str], group: str, partitions: Collection[TopicPartition]) -> Lease:
    owner = f"Spark query on {socket.gethostname()} process {os.getpid()}"
    properties = properties_for(ADMIN_ROWS, client)
    return Lease(properties, group, partitions, access=Access.READ, wait_ms=WAIT_MS, owner_id=owner)
