"""The batches that a consumer has fetched, taken from each partition in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from holdfast_log.clients.feedback.connection_log import warn
from holdfast_log.clients.feedback.events import BatchSkipped, Events
from holdfast_log.clients.fetching.fetched import (
    EncodedBatch,
    FetchedBatch,
    pass_first,
    take_first,
    take_first_encoded,
)
from holdfast_log.clients.fetching.positions import Position, StoredBatch
from holdfast_log.clients.fetching.settings import FetchSettings
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

_TAKE_MS = 100

_Batch = TypeVar("_Batch", FetchedBatch, EncodedBatch)


class _Taken(NamedTuple):
    """A batch that was taken, and where its position was then."""

    position: Position
    generation: int
    stored: StoredBatch
    start: int | None


class StoredBatches:
    """Takes stored batches out of `positions`, which the fetcher fills. They are checked and decoded here."""

    def __init__(
        self,
        positions: Mapping[TopicPartition, Position],
        settings: FetchSettings,
        events: Events,
        log_name: str,
        now_ms: Callable[[], int],
    ) -> None:
        self.has_more = False
        """Whether the last `take` ended because its time was over, and not because nothing was left."""
        self.batches_skipped = 0
        """Number of damaged batches that were passed over."""
        self.keeps_taken = False
        """Whether `give_back` can undo what is taken. It costs the memory of the batches."""
        self._taken: list[_Taken] = []
        self._positions = positions
        self._settings = settings
        self._events = events
        self._log_name = log_name
        self._now_ms = now_ms
        self._turn: deque[TopicPartition] = deque()

    def add(self, partition: TopicPartition) -> None:
        """Give the partition a turn, after all others."""
        self._turn.append(partition)

    def remove(self, partition: TopicPartition) -> None:
        """Take nothing more from the partition."""
        self._turn.remove(partition)

    def take_until_ms(self) -> int:
        """When a `take` that begins now should end: other partitions, heartbeats and the caller's timeout
        need a turn, however many batches without a record are stored."""
        return self._now_ms() + _TAKE_MS

    def take(self, until_ms: int | None = None) -> Iterator[FetchedBatch]:
        """The stored batches, one from each partition in turn, until `until_ms` (by default `take_until_ms`).

        Raises BrokerError (CORRUPT_MESSAGE) for a batch whose checksum or records are damaged, unless such
        batches are to be skipped; the position then stays before it. After a batch was returned, the error is
        raised by the next call instead.
        """
        return self._take(take_first, until_ms)

    def take_encoded(self) -> Iterator[EncodedBatch]:
        """Like `take`, but the records of the batches are only decompressed."""
        return self._take(take_first_encoded, None)

    def _take(self, take_first_of: Callable[..., _Batch | None], until_ms: int | None) -> Iterator[_Batch]:
        until_ms = self.take_until_ms() if until_ms is None else until_ms
        self.has_more = False
        has_given = False
        empty_in_a_row = 0
        while empty_in_a_row < len(self._turn):
            position = self._positions[self._turn[0]]
            empty_in_a_row += 1
            if position.store and not position.is_silent:
                stored, start = position.store[0], position.offset
                try:
                    batch = take_first_of(
                        position,
                        check_crcs=self._settings.check_crcs,
                        limit=self._settings.batch_max_bytes,
                    )
                except BrokerError as error:
                    if not self._settings.skips_corrupt or error.code is not ErrorCode.CORRUPT_MESSAGE:
                        if has_given:
                            return
                        self._turn.rotate(-1)  # The other partitions come before the next attempt.
                        raise
                    self._skip_first(position, error)
                    batch = None
                empty_in_a_row = 0
                if self.keeps_taken:
                    self._taken.append(_Taken(position, position.generation, stored, start))
                if batch is None and self._now_ms() >= until_ms:
                    self.has_more = True
                    return
                if batch is not None:
                    has_given = True
                    self._turn.rotate(-1)
                    yield batch
                    continue
            self._turn.rotate(-1)

    def forget_taken(self) -> None:
        """The application has got what was taken."""
        self._taken.clear()

    def give_back(self) -> None:
        """Undo what was taken since `forget_taken`: the application did not get it. A position that was set
        meanwhile stays where it is."""
        while self._taken:
            position, generation, stored, start = self._taken.pop()
            if position.generation == generation:
                position.store.appendleft(stored)
                position.stored_bytes += stored.header.size
                position.offset = start

    def _skip_first(self, position: Position, error: BrokerError) -> None:
        """Pass over the first stored batch, which is damaged."""
        next_offset = position.store[0].header.next_offset
        offset = pass_first(position)
        self.batches_skipped += 1
        self._events.note(BatchSkipped(position.topic, position.partition, offset, next_offset, error))
        skipped_offsets = f"from offset {offset} to before {next_offset} (on.corrupt.batch=skip)"
        warn(self._log_name, f"Skipping the records of {position.key} {skipped_offsets}: {error.message}")
