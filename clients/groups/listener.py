"""The application's listener for partitions that its group assigns and revokes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.protocol.topic_partition import TopicPartition


class RebalanceListener:
    """A base class whose methods do nothing. They are called from within `poll`, which waits for them.

    A method may use the consumer, for example to commit or to seek, but must not call `poll`. The group waits
    for it: at most `max.poll.interval.ms`, or without the heartbeat thread at most the session timeout.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These will go to other members. Offsets of processed records can still be committed."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are newly assigned; partitions that stayed are not included."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These may have other owners already, because the membership has ended: it is too late to commit.

        Calls `on_partitions_revoked` unless overridden.
        """
        self.on_partitions_revoked(partitions)
