"""In which log directory a new log is created: the one that an operator has chosen, or the emptiest."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.protocol.topic_partition import TopicPartition

CHOICES_MAX = 100_000
"""Maximum number of partitions without a log whose directory is remembered; one more replaces the oldest."""


class DirectoryChoices:
    """The directories that operators have chosen for partitions that have no log here yet (KIP-113). They are
    forgotten when the broker stops."""

    def __init__(self) -> None:
        self._chosen: dict[TopicPartition, LogDirectory] = {}

    def choose(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Create the partition's next log in this directory."""
        self._chosen.pop(partition, None)
        self._chosen[partition] = directory
        if len(self._chosen) > CHOICES_MAX:
            del self._chosen[next(iter(self._chosen))]

    def take(self, partition: TopicPartition, live: Sequence[LogDirectory]) -> LogDirectory:
        """The directory for a partition's log that is created now: of those that are `live`, which are not
        empty, the chosen one or else that with the fewest logs. Forgets the choice."""
        chosen = self._chosen.pop(partition, None)
        if chosen is not None and chosen in live:
            return chosen
        return min(live, key=lambda directory: len(directory.logs))
