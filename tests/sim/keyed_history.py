"""What clients that expect versions of keys sent and received, and its judges.

Versions are offsets, so the history of a key is a chain: every record with a condition follows the record
that it expected. With the order of requests and answers in time, that makes each key linearizable:

- a record with a condition directly follows, among its key's records, the one that its writer expected;
- a record that was refused is not in the log;
- a refusal names a record that is in the log, or none;
- no answer names an older record than an answer that had arrived before its request was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast_log.protocol.records import decode_columns
from tests.sim.checkers import StoredLog
from tests.sim.history import History, Incarnation

NONE = -1


@dataclass(slots=True, eq=False)
class KeyedWrite:
    """A write of one record. `expected` is the version that it expects of its key; None for any. `floor` is
    the highest version of the key that any client knew when the request was sent."""

    writer: str
    place: Incarnation
    key: bytes
    value: bytes
    expected: int | None
    floor: int = NONE
    offset: int | None = None
    """Where it was written, if it was acknowledged."""
    refused_at: int | None = None
    """The version that a refusal named."""

    def __str__(self) -> str:
        return f"{self.value.decode()!r}, which expected version {self.expected} of {self.key.decode()!r},"


@dataclass(slots=True)
class KeyedHistory:
    """All writes with keys, and what their writers learned."""

    history: History
    writes: list[KeyedWrite] = field(default_factory=list)
    _known: dict[tuple[Incarnation, bytes], int] = field(default_factory=dict)
    """The highest version of each key that an answer has named."""

    def sent(self, write: KeyedWrite) -> None:
        """Record that a request is being sent."""
        if write.place.at[0] not in self.history.may_lose:
            write.floor = self._known.get((write.place, write.key), NONE)
        self.writes.append(write)

    def written(self, write: KeyedWrite, offset: int) -> None:
        """Record that a broker acknowledged a write."""
        write.offset = offset
        if offset <= write.floor:
            self.history.violation(
                f"{write} was written at {offset}, after version {write.floor} had been reported"
            )
        self._learn(write, offset)

    def refused(self, write: KeyedWrite, version: int) -> None:
        """Record that a broker refused a write, because its key has this version."""
        write.refused_at = version
        if version == write.expected:
            self.history.violation(f"{write} was refused, although that is the present version")
        if version < write.floor:
            self.history.violation(
                f"{write} was refused with version {version}, after {write.floor} had been reported"
            )
        self._learn(write, version)

    def _learn(self, write: KeyedWrite, version: int) -> None:
        where = (write.place, write.key)
        self._known[where] = max(version, self._known.get(where, NONE))

    def check(self, place: Incarnation, log: StoredLog) -> Iterator[str]:
        """Compare all answers about a partition with its log."""
        mine = [write for write in self.writes if write.place == place]
        if not mine:
            return
        previous: dict[bytes, int] = {}
        found: dict[bytes, tuple[int, int]] = {}
        offsets: dict[bytes, set[int]] = {}
        for stored in log.batches:
            columns = decode_columns(stored.data, stored.header)
            rows = zip(columns.keys, columns.values, strict=True)
            for offset, (key, value) in enumerate(rows, start=stored.header.base_offset):
                if key is not None:
                    found[value or b""] = (offset, previous.get(key, NONE))
                    offsets.setdefault(key, set()).add(offset)
                    previous[key] = offset
        for write in mine:
            offset, before = found.get(write.value, (NONE, NONE))
            if write.refused_at is not None and offset != NONE:
                yield f"{write} was refused, but is in {place} at {offset}"
            if offset != NONE and write.expected not in (None, before):
                yield f"{write} is in {place} at {offset}, behind version {before}"
            cited = write.refused_at
            if cited not in (None, NONE) and cited not in offsets.get(write.key, ()):
                yield f"{write} was refused with version {cited}, which is no record of the key in {place}"
