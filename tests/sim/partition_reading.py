"""How far a simulated client has read one partition, with fetches of that partition alone."""

from __future__ import annotations

from holdfast_log.protocol.batches import whole_batches
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from holdfast_log.protocol.schema import received_records
from tests.sim.history import History, Incarnation

_PARTITION_BYTES_MAX = 8 * 1024
_BYTES_MAX = 64 * 1024


class PartitionReading:
    """The reads of the client `name`: each goes on behind the last batch that it got."""

    def __init__(self, history: History, name: str) -> None:
        self._history = history
        self._name = name
        self._position = 0

    def request(self, place: Incarnation, max_wait_ms: int) -> FetchRequest:
        """A fetch of the next records. It waits up to `max_wait_ms` for some."""
        topic, partition = place.at
        wanted = FetchPartition(
            partition=partition, fetch_offset=self._position, partition_max_bytes=_PARTITION_BYTES_MAX
        )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=_BYTES_MAX,
            topics=[FetchTopic(topic=topic, topic_id=place.topic_id, partitions=[wanted])],
            forgotten_topics_data=[],
        )

    def got(self, place: Incarnation, row: PartitionData) -> list[tuple[int, list[bytes]]]:
        """Compare an answer without an error with what others have read. Returns the base offset and all
        values of each batch in it."""
        batches = []
        records = received_records(row.records)
        for header in whole_batches(records):
            values = self._history.values_of(place, records, header)
            skipped = max(0, self._position - header.base_offset)
            self._history.saw(self._name, place, header.base_offset + skipped, values[skipped:])
            self._position = max(self._position, header.next_offset)
            batches.append((header.base_offset, values))
        return batches
