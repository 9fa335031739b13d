"""Reads what is not in memory of the indexes of keys, before the appends that depend on versions of keys.

The appends are judged on the reactor's thread, which must not wait for a device. So a worker first reads the
same parts of the files; from then on they are in the system's page cache. Meanwhile the request waits, and
with it all later requests for the same partitions: each partition gets its appends in the order in which they
arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.key_search import cold_key_search
from holdfast_log.broker.log.key_versions import keys_of
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.workers import Workers, all_back
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(slots=True, eq=False)
class HeldRequest:
    """A request that waits: for its own reads while `is_reading`, otherwise for requests before it."""

    partitions: frozenset[TopicPartition]
    proceed: Callable[[], None]
    is_reading: bool


class KeyReads:
    """Holds the produce requests that wait for reads, or for such requests."""

    def __init__(self, replicas: Replicas, workers: Workers) -> None:
        self._replicas = replicas
        self._workers = workers
        self.held: list[HeldRequest] = []
        """The requests that wait, in the order of their arrival."""

    def may_concern(self, appends: Sequence[Append]) -> bool:
        """Whether `hold` must be asked about these appends: a quick look, for every produce request."""
        is_concerned = bool(self.held)
        for append in appends:
            if append.condition is not None and append.condition.versions:
                is_concerned = True
        return is_concerned

    def hold(self, appends: Sequence[Append], proceed: Callable[[], None]) -> bool:
        """Whether these appends must wait. If so, `proceed` is called when they need not wait any more."""
        reads = [read for append in appends for read in self._reads(append)]
        partitions = frozenset(append.topic_partition for append in appends)
        if not reads and all(partitions.isdisjoint(other.partitions) for other in self.held):
            return False
        for append in appends:
            # The buffer of the request is used again once its handler has returned.
            append.records = memoryview(bytearray(append.records))
        held = HeldRequest(partitions, proceed, is_reading=bool(reads))
        self.held.append(held)
        if reads:
            # A read that fails is repeated when the condition is judged, which answers the error.
            jobs: list[Deferred[None]] = [self._workers.run(read) for read in reads]
            all_back(jobs).addErrback(lambda failure: None).addCallback(lambda _: self._read(held))
        return True

    def _reads(self, append: Append) -> list[Callable[[], None]]:
        condition = append.condition
        if condition is None or not condition.versions or append.origin is not AppendOrigin.CLIENT:
            return []
        try:
            log = self._replicas.partition(append.topic, append.index).log
            if log.keys is None or not log.keys.has_files:
                return []
            headers = split(append.records)
            records = {each.record for each in condition.versions}
            digests = [
                digest
                for header in headers[:1]
                for digest, delta in keys_of(append.records, header)
                if delta in records
            ]
            search = cold_key_search(log, digests)
        except BrokerError:
            return []  # The append will fail for the same reason.
        return [] if search is None else [search]

    def _read(self, held: HeldRequest) -> None:
        held.is_reading = False
        blocked: set[TopicPartition] = set()
        ready = []
        for each in self.held:
            if each.is_reading or not blocked.isdisjoint(each.partitions):
                blocked |= each.partitions
            else:
                ready.append(each)
        self.held = [each for each in self.held if each not in ready]
        for each in ready:
            each.proceed()
