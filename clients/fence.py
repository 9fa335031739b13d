"""Fences: what an owner gives to other processes, so that their requests count as the owner's.

fence = lease.fence()                              # in the process that owns the partitions
producer = Producer(properties, fence=fence)       # in any process, on connections of its own
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_log.clients.arguments import A_PARTITION, checked
from holdfast_log.protocol.topic_partition import TopicPartition

FENCES_FEATURE = "holdfast.fences"


@dataclass(frozen=True, slots=True)
class OwnerFence:
    """The token (incarnation) of the grant of each partition, and the secret that proves the grants.

    It can be pickled, and sent to other processes. Its secret is the owner's credential: a process that has
    it can also renew, resume and release the grants. The text of a fence does not show it.
    """

    tokens: Mapping[TopicPartition, int]
    secret: bytes = field(repr=False)

    @checked(partition=A_PARTITION)
    def token(self, partition: TopicPartition) -> int:
        """The token of a partition. Raises ValueError for one that the fence does not cover."""
        found = self.tokens.get(partition)
        if found is None:
            covered = ", ".join(map(str, self.tokens))
            raise ValueError(f"the fence does not cover {partition}, only {covered}")
        return found
