"""Has the records of produce requests examined before they are appended, by workers where that takes long."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from twisted.internet.defer import Deferred

from holdfast_log.broker.decompression_budget import DecompressionBudget
from holdfast_log.broker.lanes import Lane
from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.decompression import (
    INLINE_BYTES_MAX,
    INLINE_DECOMPRESSED_BYTES_MAX,
    QUICK_BYTES_MAX,
)
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.log.validation import Examined, ExcessiveRecordsError, examine
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.protocol.batches import BatchHeader, is_compressed, read_header
from holdfast_log.protocol.errors import BrokerError

_QUICK_JOBS_MAX = 2
"""Maximum number of workers that examine batches at a time, besides the one for those of many bytes."""


class Examinations:
    """Examines the batches of one request after another. Those that it does not are for the preparation of
    the append (`broker.log.preparation`), which examines what was not examined."""

    def __init__(self, replicas: Replicas, budget: DecompressionBudget) -> None:
        self._replicas = replicas
        self._bytes_max = budget.batch_bytes_max
        self._quick = Lane(budget.share(QUICK_BYTES_MAX), _QUICK_JOBS_MAX)
        self._large = Lane(budget.share(self._bytes_max), 1)

    def begin(self, appends: Sequence[Append], owner: Hashable) -> list[Deferred[None]]:
        """Examine the batches of a request. Returns the examinations for which it has to wait, which never
        fail. `owner` is the connection, so that connections take turns."""
        plain_left, packed_left = INLINE_BYTES_MAX, INLINE_DECOMPRESSED_BYTES_MAX
        waits = []
        for append in appends:
            records = append.records
            size = len(records)
            is_packed = is_compressed(records)
            if not is_packed and size <= plain_left:
                plain_left -= size
                continue
            found = self._header_and_settings(append)
            if found is None:
                continue  # The append will fail, for another reason.
            header, settings = found
            if is_packed and size <= packed_left and (settings.codec in (None, header.compression)):
                examined = _examined(records, header, settings, packed_left)
                if isinstance(examined, ExcessiveRecordsError):
                    packed_left -= packed_left // 4  # What was in vain counts, too.
                else:
                    append.examined = examined
                    packed_left -= examined.size if isinstance(examined, Examined) else size
                    continue
            append.keep()
            waits.append(self._by_worker(append, header, settings, owner))
        return waits

    def _header_and_settings(self, append: Append) -> tuple[BatchHeader, LogSettings] | None:
        partition = self._replicas.find(append.topic, append.index)
        if partition is None or append.origin is not AppendOrigin.CLIENT:
            return None
        try:
            header = read_header(append.records)
        except BrokerError:
            return None
        if header.size != len(append.records):
            return None
        return header, partition.log.settings

    def _by_worker(
        self, append: Append, header: BatchHeader, settings: LogSettings, owner: Hashable
    ) -> Deferred[None]:
        """Examine a batch with little memory, and if that is too little with much, one at a time."""
        done: Deferred[None] = Deferred()
        is_large = bool(header.compression) and header.size > QUICK_BYTES_MAX
        lane, bytes_max = (self._large, self._bytes_max) if is_large else (self._quick, QUICK_BYTES_MAX)
        lane.run(owner, _examined, append.records, header, settings, bytes_max).addCallback(
            partial(self._examined, append, header, settings, owner, bytes_max, done)
        )
        return done

    def _examined(
        self,
        append: Append,
        header: BatchHeader,
        settings: LogSettings,
        owner: Hashable,
        bytes_max: int,
        done: Deferred[None],
        examined: Examined | BrokerError,
    ) -> None:
        if isinstance(examined, ExcessiveRecordsError) and bytes_max < self._bytes_max:
            self._large.run(owner, _examined, append.records, header, settings, self._bytes_max).addCallback(
                partial(self._examined, append, header, settings, owner, self._bytes_max, done)
            )
            return
        append.examined = examined
        done.callback(None)


def _examined(
    records: memoryview, header: BatchHeader, settings: LogSettings, bytes_max: int
) -> Examined | BrokerError:
    """The result or the error of an examination. Any thread may call this."""
    try:
        return examine(records, header, settings, bytes_max)
    except BrokerError as error:
        # Without the traceback, which would keep the decompressed records.
        return error.with_traceback(None)
