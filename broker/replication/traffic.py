"""What goes in and out of this broker's partitions, counted by topic.

The counts are added to once for each batch appended and each partition read, and only read by metrics.
"""

from __future__ import annotations


class TopicTraffic:
    """Counts of one topic on this broker since the broker's start, or since the topic has replicas here.

    Bytes are those of record batches, as they are stored: compressed, with headers.
    """

    __slots__ = (
        "appends",
        "bytes_in",
        "bytes_out",
        "failed_appends",
        "failed_reads",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "reads",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        """Records that this broker, as the leader, has appended. A repeated append counts once."""
        self.bytes_in = 0
        self.bytes_out = 0
        """Bytes sent to consumers."""
        self.appends = 0
        """Appends for one partition each that clients and this broker have asked for, with success."""
        self.failed_appends = 0
        self.reads = 0
        """Partitions in the answers to consumers' fetches, without those that failed."""
        self.failed_reads = 0
        self.replication_bytes_in = 0
        """Bytes copied from leaders."""
        self.replication_bytes_out = 0
        """Bytes sent to followers."""
        self.isr_shrinks = 0
        """How often the in-sync set of a partition that this broker leads has lost members."""
        self.isr_expands = 0
        """How often such a set has won members."""


class BrokerTraffic:
    """The counts of all topics that have replicas on this broker, and of all topics together."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}
        self._gone = TopicTraffic()
        """The sums of topics that have no replica here any more."""

    def of(self, topic: str) -> TopicTraffic:
        """The counts of a topic that has replicas here."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicTraffic()
        return found

    def find(self, topic: str) -> TopicTraffic:
        """The counts to which a request for a topic adds: its own, or those of topics without replicas here.
        So the names that clients make up take no memory."""
        return self._topics.get(topic, self._gone)

    def forget(self, topic: str) -> None:
        """The topic has no replica here any more. Its counts stay in those of all topics together."""
        gone = self._topics.pop(topic, None)
        if gone is not None:
            for name in TopicTraffic.__slots__:
                setattr(self._gone, name, getattr(self._gone, name) + getattr(gone, name))

    def topics(self) -> list[tuple[str, TopicTraffic]]:
        return list(self._topics.items())

    def total(self, name: str) -> int:
        """The count with this name of all topics together."""
        counts = [self._gone, *self._topics.values()]
        return sum([int(getattr(each, name)) for each in counts])
