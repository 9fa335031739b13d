"""Restores the leader epochs of a log that is being opened: those up to the recovery point from their file,
later ones from the record of the epochs that have begun, or from the batches if there is none to believe.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from holdfast_log.broker.log import checkpoints, names
from holdfast_log.broker.log.begun_epochs import read_begun_epochs
from holdfast_log.broker.log.epochs import UNDEFINED_EPOCH, LeaderEpochs
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
    stored = LeaderEpochs(epochs.entries)
    # Of a log whose records have all been removed, no batch says in which epoch they were written. The epochs
    # in the file do, and an election that compares logs needs the latest one.
    was_emptied = 0 < log_start_offset == end_offset and not loading.begins_anew
    epochs.truncate_to(0 if loading.begins_anew else end_offset + was_emptied)
    if not was_emptied:
        # The file may hold epochs that a truncation removed, while others began at those offsets since.
        epochs.truncate_to(scan_from)
    is_killed = request.has_all_writes and not request.is_clean
    if not (is_killed and _take_begun(loading, stored, max(scan_from, log_start_offset), end_offset)):
        _read_epochs(loading, scan_from)
    epochs.advance_start(log_start_offset)
    epochs.is_dirty = True


def _take_begun(loading: Loading, stored: LeaderEpochs, scan_from: int, end_offset: int) -> bool:
    """Take over the epochs that had begun when the last process was killed, and compare the batches from
    `scan_from` on with them. One batch that differs is damaged. Returns False if the record is missing, says
    nothing of a batch, or if several batches differ: then the batches say which epochs there are.

    `stored` are the epochs of the checkpoint. Kafka writes each of them there when it begins, and no record:
    an epoch that only the checkpoint has shows that Kafka has used the directory since."""
    entries = read_begun_epochs(loading.disk, loading.request.directory)
    if entries is None:
        _doubt_last_epoch(loading, scan_from)
        return False
    begun = LeaderEpochs(entries)
    begun.truncate_to(end_offset)
    differing = []
    for header in _headers_from(loading, scan_from):
        epoch = begun.epoch_at(max(header.base_offset, scan_from))
        if epoch == UNDEFINED_EPOCH:
            return False
        if header.leader_epoch == epoch:
            continue
        if header.leader_epoch > begun.latest and stored.epoch_at(header.base_offset) == header.leader_epoch:
            return False
        differing.append((header, epoch))
    if len(differing) > 1:
        _doubt(loading, [header for header, _ in differing], "differs from the record of what has begun")
        return False
    for header, epoch in differing:
        why = f"offset {header.base_offset} has leader epoch {header.leader_epoch}, it was written in {epoch}"
        _doubt(loading, [header], f"was written in {epoch}: it is damaged, and is examined")
        loading.doubt = header.base_offset, why
    if scan_from < end_offset:
        loading.epochs.begin(begun.epoch_at(scan_from), scan_from)
    for epoch, start_offset in begun.entries:
        if start_offset > scan_from:
            loading.epochs.begin(epoch, start_offset)
    return True


def _doubt_last_epoch(loading: Loading, scan_from: int) -> None:
    """Without a record, doubt the last batch if the batch before it has another epoch: the disk may have
    changed either. An earlier version of Holdfast has written no record."""
    last: list[BatchHeader] = []
    for header in _headers_from(loading, scan_from):
        last = [*last[-1:], header]
    before = last[0].leader_epoch if len(last) > 1 else loading.epochs.latest
    if last and before not in (last[-1].leader_epoch, UNDEFINED_EPOCH):
        _doubt(loading, last[-1:], f"follows {before}, and no record says whether that epoch has begun")


def _doubt(loading: Loading, headers: list[BatchHeader], why: str) -> None:
    """Note that the log may not have what it seems to have."""
    for header in headers:
        logger.warning(
            "%s: the leader epoch %d of the batch at offset %d %s; this broker may lack records",
            loading.request.directory, header.leader_epoch, header.base_offset, why,
        )  # fmt: skip
    loading.cut_short()


def _read_epochs(loading: Loading, scan_from: int) -> None:
    """Assign the epochs of the batches from `scan_from` on. No checksum covers a batch's epoch. One that only
    a single batch has, before batches of an earlier epoch, is damage. As the log's latest epoch it would make
    other replicas truncate their logs to that batch. If only one batch of an earlier epoch follows, and then
    others of the single one, the one between is damaged."""
    epochs = loading.epochs
    single: int | None = None
    lower: BatchHeader | None = None
    for header in _headers_from(loading, scan_from):
        if header.leader_epoch < 0:
            continue
        if single is not None and header.leader_epoch < epochs.latest:
            if lower is None:
                lower = header
                continue
            _drop_single(epochs, single, lower)
            single = None
        lower = None
        before = epochs.latest
        epochs.begin(header.leader_epoch, header.base_offset)
        single = header.base_offset if epochs.latest != before else None
    if single is not None and lower is not None:
        _drop_single(epochs, single, lower)


def _headers_from(loading: Loading, offset: int) -> Iterator[BatchHeader]:
    """The batches that end at or after `offset`, without those of an unknown epoch."""
    for segment in loading.segments:
        if segment.next_offset > offset:
            for header in segment.headers(0):
                if header.last_offset >= offset and header.leader_epoch != UNDEFINED_EPOCH:
                    yield header


def _drop_single(epochs: LeaderEpochs, single: int, lower: BatchHeader) -> None:
    """Forget the epoch that began with the batch at `single`, for that of the batch after it."""
    epochs.truncate_to(single)
    epochs.begin(lower.leader_epoch, lower.base_offset)
