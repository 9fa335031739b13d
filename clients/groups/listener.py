"""How an application hears of partitions that come and go."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.topic_partition import TopicPartition


class RebalanceListener:
    """To be subclassed; what is not overridden does nothing. Called from within `poll`, which waits for it.

    The consumer may be used in there, to commit or to seek for example, but not to `poll`. The group waits
    too: at most `max.poll.interval.ms`, or with managed groups the session timeout.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These go to other members. They are still ours: what has been processed can be committed."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These have come; those that stayed are not told again."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These belong to others already, because this member was away for too long: too late to commit.

        Unless overridden the same as `on_partitions_revoked`.
        """
        self.on_partitions_revoked(partitions)
