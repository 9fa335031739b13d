"""Known bugs in the examination of batches that clients send, in searches by time, and behind damage."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.decompression_budget import DecompressionBudget
from holdfast_log.broker.handlers import list_offsets
from holdfast_log.broker.lanes import Lane
from holdfast_log.broker.log import preparation, time_search, validation
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.held_requests import HeldRequest, HeldRequests
from holdfast_log.clients.fetching.fetched import pass_first
from holdfast_log.clients.fetching.positions import Position
from holdfast_log.clients.fetching.stored_batches import StoredBatches
from holdfast_log.protocol.batches import BatchHeader, Compression
from holdfast_log.protocol.compression import decompress
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.record_validation import RecordsVerdict, validate
from holdfast_log.protocol.wire import Buffer
from tests.sim.mutation import Mutation, Patch


def _believe_the_header() -> Sequence[Patch]:
    def mutant(data: Buffer, record_count: int, base_timestamp: int) -> RecordsVerdict:
        return validate(data, record_count, base_timestamp)._replace(reason=None)

    return [(validation, "validate", mutant)]


def _inflate_all() -> Sequence[Patch]:
    def mutant(data: memoryview, codec: Compression, bytes_max: int) -> Buffer:
        return decompress(codec, data, 2**31 - 1)

    return [(validation, "_decompressed", mutant)]


def _believe_the_largest_timestamp() -> Sequence[Patch]:
    def mutant(buffer: bytearray | memoryview, header: BatchHeader, timestamp_ms: int) -> BatchHeader:
        return header

    return [(preparation, "set_max_timestamp", mutant)]


def _hold_again_behind_all() -> Sequence[Patch]:
    def mutant(self: HeldRequests, appends: Sequence[Append]) -> HeldRequest | None:
        return None

    return [(HeldRequests, "_proceeding", mutant)]


def _believe_what_was_read() -> Sequence[Patch]:
    def mutant(log: Log, truncations: int) -> bool:
        return False

    return [(time_search, "_has_been_cut", mutant)]


def _start_whatever_comes() -> Sequence[Patch]:
    def mutant(self: DecompressionBudget) -> None:
        while self._waiting:
            _, start = self._waiting.popleft()
            start()

    return [(DecompressionBudget, "_start_waiting", mutant)]


def _search_for_all_at_once() -> Sequence[Patch]:
    return [(list_offsets, "Lane", lambda workers, jobs_max: Lane(workers, 1000))]


def _skip_in_silence() -> Sequence[Patch]:
    def mutant(self: StoredBatches, position: Position, error: BrokerError) -> None:
        pass_first(position)

    return [(StoredBatches, "_skip_first", mutant)]


RARE = (
    Mutation(
        "record-count-believed",
        "a leader appends a batch without a look at its records, and no reader gets beyond it",
        _believe_the_header,
    ),
    Mutation(
        "bomb-inflated",
        "a leader decompresses a batch to whatever size it has",
        _inflate_all,
    ),
    Mutation(
        "largest-timestamp-believed",
        "a leader keeps the largest timestamp that a batch claims, and searches by time miss its records",
        _believe_the_largest_timestamp,
    ),
    Mutation(
        "held-again-behind-all",
        "a produce request that has to wait once more is overtaken by later ones for its partition",
        _hold_again_behind_all,
    ),
    Mutation(
        "found-in-cut-log",
        "a search by time answers a record that was cut off after a worker had found it",
        _believe_what_was_read,
    ),
    Mutation(
        "budget-ignored",
        "all jobs decompress at once, whatever they need together",
        _start_whatever_comes,
    ),
    Mutation(
        "searches-all-at-once",
        "one client's searches by time occupy all workers",
        _search_for_all_at_once,
    ),
    Mutation(
        "skipped-in-silence",
        "a consumer goes on behind a damaged batch, and tells nobody",
        _skip_in_silence,
    ),
)
