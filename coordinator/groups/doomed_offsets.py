"""Which committed offsets are still to be deleted, though they count as deleted.

A topic, or a group, may have hundreds of thousands of offsets, and each takes a record in the log. So more
than a turn's are deleted in steps. Nobody sees them meanwhile: a topic or a group of the same name may be
created at once, and must not inherit them. What is committed for such a partition from then on counts: the
partition is settled.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Round:
    """What is deleted in one walk through the offsets, each with the number of its deletion."""

    topics: dict[str, int]
    groups: dict[str, int]


@dataclass(slots=True)
class DoomedOffsets:
    """The topics and groups whose offsets are being deleted."""

    _topics: dict[str, int] = field(default_factory=dict)
    _groups: dict[str, int] = field(default_factory=dict)
    _settled: dict[str, set[TopicPartition]] = field(default_factory=dict)
    """By group, the partitions of which later commits count."""
    _number: int = 0

    def __bool__(self) -> bool:
        return bool(self._topics or self._groups)

    def has(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether what a group has committed for a partition counts as deleted."""
        return (
            partition.topic in self._topics or group_id in self._groups
        ) and partition not in self._settled.get(group_id, ())

    def has_all_of(self, group_id: str) -> bool:
        """Whether a group has been deleted, and has committed nothing since."""
        return group_id in self._groups and group_id not in self._settled

    @property
    def groups(self) -> Collection[str]:
        """The deleted groups."""
        return self._groups.keys()

    def add_topics(self, topics: Collection[str]) -> None:
        """Topics have been deleted, perhaps again."""
        self._number += 1
        self._topics.update(dict.fromkeys(topics, self._number))
        for group_id, settled in list(self._settled.items()):
            settled -= {each for each in settled if each.topic in topics}
            if not settled:
                del self._settled[group_id]

    def add_group(self, group_id: str) -> None:
        """A group has been deleted, perhaps again."""
        self._number += 1
        self._groups[group_id] = self._number
        self._settled.pop(group_id, None)

    def settle(self, group_id: str, partition: TopicPartition) -> None:
        """What was to be deleted of a partition is deleted: what follows counts."""
        self._settled.setdefault(group_id, set()).add(partition)

    def unsettle(self, group_id: str, partition: TopicPartition) -> None:
        """What has deleted and settled a partition was undone: it has to be deleted in another round."""
        settled = self._settled.get(group_id, set())
        settled.discard(partition)
        if not settled:
            self._settled.pop(group_id, None)
        self.look_again(group_id, partition)

    def look_again(self, group_id: str, partition: TopicPartition) -> None:
        """Another round has to look at a partition: the present one may have passed it."""
        self._number += 1
        if partition.topic in self._topics:
            self._topics[partition.topic] = self._number
        if group_id in self._groups:
            self._groups[group_id] = self._number

    def begin_round(self) -> Round:
        return Round(dict(self._topics), dict(self._groups))

    def end_round(self, ended: Round) -> None:
        """All offsets have been looked at: what has not been deleted again since needs no further round."""
        for names, seen in ((self._topics, ended.topics), (self._groups, ended.groups)):
            for name, number in seen.items():
                if names.get(name) == number:
                    del names[name]
        if not self:
            self._settled.clear()

    def clear(self) -> None:
        """Delete no more: what is left counts again."""
        self._topics.clear()
        self._groups.clear()
        self._settled.clear()
