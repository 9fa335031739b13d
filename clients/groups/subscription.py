"""What a consumer has asked its group for."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_log.protocol.topic_partition import TopicPartition


class GroupSubscription:
    """Topics, and a regular expression for more of them."""

    def __init__(self) -> None:
        self.topics: dict[str, None] = {}
        self.pattern: str | None = None
        self._matched: set[str] = set()

    def __contains__(self, topic: str) -> bool:
        """Whether the group assigns the topic's partitions, if that is known: which topics the pattern
        matches, only the coordinator knows."""
        return topic in self.topics or topic in self._matched

    def __bool__(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def match(self, pattern: str | None) -> None:
        """Replace the regular expression; None for none."""
        self.pattern = pattern
        self._matched.clear()

    def note(self, assigned: Iterable[TopicPartition]) -> None:
        """The group has assigned partitions."""
        if self.pattern is not None:
            self._matched.update(partition.topic for partition in assigned)
