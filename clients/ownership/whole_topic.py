"""The partitions of a topic that a producer owns as a whole: those that it has, and those that are added."""

from __future__ import annotations

from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.ownership.claims import OwnershipClaims
from holdfast_log.protocol.messages.ownership import ResourceStanding
from holdfast_log.protocol.topic_partition import TopicPartition


class WholeTopic:
    """Adds a claim for each partition that the topic gets. The producer's lock guards it.

    While the producer owns partition 0, brokers keep added partitions for it. Those that were added before it
    was granted partition 0 may not be in the metadata yet: the answer to the claim of partition 0 says how
    many partitions there are, and the producer does not own the topic before it has all of them.

    `partitions` are the numbers of those that the producer may write to: the ones it began with, and added
    ones from their first grant on.
    """

    def __init__(
        self, claims: OwnershipClaims, metadata: Metadata, topic: str, partitions: list[int]
    ) -> None:
        self.partitions = partitions
        self._claims = claims
        self._metadata = metadata
        self._topic = topic
        self._first = claims.by_resource[TopicPartition(topic, 0)]
        self._count = len(partitions)
        self._grant: ResourceStanding | None = None
        self._asked_incarnation = -1

    def grow(self) -> bool:
        """Claim partitions that have been added. Returns whether anything has changed.

        Asked in every turn of the loop, so the usual case, nothing added, must cost little.
        """
        info = self._metadata.topics.get(self._topic)
        listed = 0 if info is None else len(info.partitions)
        is_complete = self._count == len(self.partitions)
        if listed <= self._count and is_complete and self._first.grant is self._grant:
            return False
        self._ask_for_count(self._first.grant)
        count = max(listed, self._count, -1 if self._grant is None else self._grant.partition_count)
        for number in range(self._count, count):
            self._claims.add(TopicPartition(self._topic, number))
        self._count = count
        self._take_granted()
        return True

    def _ask_for_count(self, grant: ResourceStanding | None) -> None:
        """A grant that came out of the queue does not say how many partitions there are: resume it once, and
        the answer does. A broker that does not know whole topics never says it."""
        self._grant = grant
        if grant is None or grant.incarnation == self._asked_incarnation:
            return
        if grant.partition_count < 0 and self._first.is_held:
            self._first.ask_whole_grant()
        self._asked_incarnation = grant.incarnation

    def _take_granted(self) -> None:
        """Let the producer write to added partitions, in their order, once they have been granted."""
        while len(self.partitions) < self._count:
            number = len(self.partitions)
            if self._claims.by_resource[TopicPartition(self._topic, number)].grant is None:
                return
            self.partitions.append(number)
