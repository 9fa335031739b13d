"""Reads what is not in memory of the indexes of keys, before the appends that depend on versions of keys.

The appends are judged on the reactor's thread, which must not wait for a device. So a worker first reads the
same parts of the files; from then on they are in the system's page cache. Meanwhile the request waits
(`held_requests`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from twisted.internet.defer import Deferred

from holdfast_log.broker.decompression_budget import DecompressionBudget
from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.key_search import cold_key_search
from holdfast_log.broker.log.key_versions import keys_of
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.examinations import Examinations
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.workers import Workers, all_back
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.errors import BrokerError


class KeyReads:
    """Has produce requests wait for reads, together with the requests that are `held` for other reasons."""

    def __init__(
        self, replicas: Replicas, workers: Workers, held: HeldRequests, budget: DecompressionBudget
    ) -> None:
        self._replicas = replicas
        self._workers = workers
        self._held = held
        self._examinations = Examinations(replicas, budget)

    def hold(
        self,
        appends: Sequence[Append],
        proceed: Callable[[], None],
        owner: Hashable = None,
        besides: Sequence[Deferred[None]] = (),
    ) -> bool:
        """Whether these appends must wait: there is nothing to wait for unless they expect versions of keys,
        a batch is compressed or large, or requests are held. If so, `proceed` is called when they need not
        wait any more. `owner` is the connection from which they came. `besides` is what they have to wait for
        in any case."""
        work = self._examinations.begin(appends, owner)
        if work:
            # Records are read only after their examination.
            work = [all_back(work).addCallback(lambda _: all_back(self._begin_reads(appends)))]
        else:
            work = self._begin_reads(appends)
        work = [*work, *besides]
        if not work and not self._held.is_behind(frozenset(append.topic_partition for append in appends)):
            return False
        # A read that fails is repeated when the condition is judged, which answers the error.
        self._held.hold(appends, work, proceed)
        return True

    def _begin_reads(self, appends: Sequence[Append]) -> list[Deferred[None]]:
        return [self._workers.run(read) for append in appends for read in self._reads(append)]

    def _reads(self, append: Append) -> list[Callable[[], None]]:
        condition = append.condition
        if condition is None or not condition.versions or append.origin is not AppendOrigin.CLIENT:
            return []
        if isinstance(append.examined, BrokerError):
            return []  # The append will fail.
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
