"""Restores the leader epochs of a log that is being opened: those up to the recovery point from their file,
later ones from the batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from holdfast_log.broker.log import checkpoints, names
from holdfast_log.broker.log.epochs import LeaderEpochs
from holdfast_log.broker.log.loading import Loading
from holdfast_log.protocol.batches import BatchHeader

logger = logging.getLogger(__name__)


def load_epochs(loading: Loading, log_start_offset: int, end_offset: int) -> None:
    request = loading.request
    path = loading.path(names.LEADER_EPOCHS)
    scan_from = end_offset if request.is_clean else request.recovery_point
    try:
        loading.epochs = LeaderEpochs(checkpoints.decode_epochs(loading.disk.read(path)))
    except FileNotFoundError:
        scan_from = log_start_offset
    except ValueError as error:
        logger.warning("Ignoring %s: %s", path, error)
        scan_from = log_start_offset
    epochs = loading.epochs
    # Of a log whose records have all been removed, no batch says in which epoch they were written. The epochs
    # in the file do, and an election that compares logs needs the latest one.
    was_emptied = 0 < log_start_offset == end_offset and not loading.begins_anew
    epochs.truncate_to(0 if loading.begins_anew else end_offset + was_emptied)
    if not was_emptied:
        # The file may hold epochs that a truncation removed, while others began at those offsets since.
        epochs.truncate_to(scan_from)
    _read_epochs(loading, scan_from)
    epochs.advance_start(log_start_offset)
    epochs.is_dirty = True


def _read_epochs(loading: Loading, scan_from: int) -> None:
    """Assign the epochs of the batches from `scan_from` on. No checksum covers a batch's epoch. One that only
    a single batch has, before batches of an earlier epoch, is damage. As the log's latest epoch it would make
    other replicas truncate their logs to that batch. If only one batch of an earlier epoch follows, and then
    others of the single one, the one between is damaged."""
    epochs = loading.epochs
    single: int | None = None
    lower: BatchHeader | None = None
    for header in _headers_from(loading, scan_from):
        if single is not None and header.leader_epoch < epochs.latest:
            if lower is None:
                lower = header
                continue
            _drop_single(epochs, single, lower)
            single = None
        lower = None
        before = epochs.latest
        epochs.assign(header.leader_epoch, header.base_offset)
        single = header.base_offset if epochs.latest != before else None
    if single is not None and lower is not None:
        _drop_single(epochs, single, lower)


def _headers_from(loading: Loading, offset: int) -> Iterator[BatchHeader]:
    """The batches that end at or after `offset`, without those of an unknown or impossible epoch."""
    for segment in loading.segments:
        if segment.next_offset > offset:
            for header in segment.headers(0):
                if header.last_offset >= offset and header.leader_epoch >= 0:
                    yield header


def _drop_single(epochs: LeaderEpochs, single: int, lower: BatchHeader) -> None:
    """Forget the epoch that began with the batch at `single`, for that of the batch after it."""
    epochs.truncate_to(single)
    epochs.assign(lower.leader_epoch, lower.base_offset)
