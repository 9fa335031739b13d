"""The memory of transactional ids: how many bytes each counts, and who has made it known.

A transactional id is remembered for a week after its last transaction, so a client that invents ids could
leave no room for those of others. Each counts to the source that has asked for its producer id last: a
principal, or the address of a client without one. What a new coordinator reads from the log has no known
source until its producer asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_log.coordinator.transactions.records import Transaction
from holdfast_log.coordinator.transactions.settings import TransactionSettings

NO_SOURCE = ""
"""Who has made an id known that was read from the log, or for a broker."""

_ID_PRICE = 400
_PARTITION_PRICE = 150


@dataclass(slots=True)
class TransactionMemory:
    """Bytes of the transactional ids of all shards of a broker, and those of each source."""

    bytes: int = 0
    by_source: dict[str, int] = field(default_factory=dict)

    def grow(self, source: str, count: int) -> None:
        """Count so many bytes more, or less."""
        self.bytes += count
        if source == NO_SOURCE:
            return
        of_source = self.by_source.get(source, 0) + count
        if of_source > 0:
            self.by_source[source] = of_source
        else:
            self.by_source.pop(source, None)


class ShardMemory:
    """The part of one shard."""

    def __init__(self, settings: TransactionSettings, memory: TransactionMemory) -> None:
        self._settings = settings
        self._memory = memory
        self._sources: dict[str, str] = {}  # of transactional ids
        self._own = TransactionMemory()

    def has_room(self, transactional_id: str, grown: int, source: str | None = None) -> bool:
        """Whether the id may grow by so many bytes, for this source or by default for the one it has."""
        if grown <= 0:
            return True
        if self._memory.bytes + grown > self._settings.state_bytes_max:
            return False
        source = self._sources.get(transactional_id, NO_SOURCE) if source is None else source
        of_source = self._memory.by_source.get(source, 0)
        return source == NO_SOURCE or of_source + grown <= self._settings.source_bytes_max

    def changed(self, transactional_id: str, before: Transaction | None, now: Transaction | None) -> None:
        """Count an id that has changed; None: that is not known."""
        self._grow(self._sources.get(transactional_id, NO_SOURCE), -price(transactional_id, before))
        if now is None:
            self._sources.pop(transactional_id, None)
        self._grow(self._sources.get(transactional_id, NO_SOURCE), price(transactional_id, now))

    def adopt(self, transactional_id: str, known: Transaction | None, source: str) -> None:
        """The source has asked for the producer id of this transactional id."""
        self._grow(self._sources.get(transactional_id, NO_SOURCE), -price(transactional_id, known))
        if source == NO_SOURCE:
            self._sources.pop(transactional_id, None)
        else:
            self._sources[transactional_id] = source
        self._grow(source, price(transactional_id, known))

    def close(self) -> None:
        """The shard has ended."""
        own, self._own = self._own, TransactionMemory()
        of_sources = 0
        for source, count in own.by_source.items():
            self._memory.grow(source, -count)
            of_sources += count
        self._memory.grow(NO_SOURCE, of_sources - own.bytes)
        # What comes later changes nothing.
        self._memory = TransactionMemory()

    def _grow(self, source: str, count: int) -> None:
        self._own.grow(source, count)
        self._memory.grow(source, count)


def price(transactional_id: str, transaction: Transaction | None) -> int:
    """Bytes of a transactional id in memory."""
    if transaction is None:
        return 0
    return _ID_PRICE + 2 * len(transactional_id) + _PARTITION_PRICE * len(transaction.partitions)
