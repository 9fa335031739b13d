"""Replaces closed segments of a log by one that holds what compaction has left of their records.

The new files are complete and have the suffix `.cleaned`. Then, in this order, so that a crash at any point
loses nothing and leaves no record twice:

1. `.cleaned` is renamed to `.swap`. From now on recovery finishes the work, see `broker.log.recovery`. A log
that is truncated, or whose first segments are removed, takes this step back. 2. The directory is made durable
by a worker: before that, no old file may disappear. 3. The old files get the suffix `.deleted`, the oldest
first, and the new ones their final names. Readers that hold an old file finish. The reactor does only these
renames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_log.broker.log import names
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.segment import Segment


@dataclass(frozen=True, slots=True)
class SegmentReplacement:
    """`old` are adjacent closed segments of a log. The new one has `size` bytes. `truncations` is the log's
    number of them when the copying began."""

    log: Log
    old: tuple[Segment, ...]
    size: int
    truncations: int
    created_ms: int
    has_aborted: bool | None = None
    """Whether the new segment has aborted transactions, in a new index; None if the index stays as it is."""


def is_current(log: Log, segments: Sequence[Segment], truncations: int) -> bool:
    """Whether a log still has these segments unchanged, and may be compacted."""
    if log.failure is not None or log.truncations != truncations or log.settings.is_dense:
        return False
    present = set(log.segments)
    return all(segment in present and segment.damage is None for segment in segments)


def begin_replacement(replacement: SegmentReplacement) -> bool:
    """Step 1. Returns whether the log still has the segments. Raises OSError."""
    log, old = replacement.log, replacement.old
    if not is_current(log, old, replacement.truncations):
        return False
    # Before the log: an entry that is dropped is of a transaction that has no records there any more, but
    # in a log without its marker it would hide later transactions of the same producer.
    if replacement.has_aborted is not None:
        _replace_index(log, old[0], has_entries=replacement.has_aborted)
    log.segments.begin_replacement(old)
    return True


def _replace_index(log: Log, segment: Segment, *, has_entries: bool) -> None:
    path = segment.path_of(names.TRANSACTION_INDEX)
    if has_entries:
        log.disk.rename(path + names.CLEANED, path)
    else:
        log.disk.remove(path)
    segment.aborted.forget()


def finish_replacement(replacement: SegmentReplacement) -> bool:
    """Step 3, after the directory has been made durable. Returns whether the log still has the segments.
    Raises OSError."""
    log, old = replacement.log, replacement.old
    if not log.segments.may_replace(old):
        return False
    if not is_current(log, old, replacement.truncations):
        log.segments.cancel_replacement()
        return False
    segment = Segment(log.files, log.directory, old[0].base_offset, log.settings)
    segment.size = replacement.size
    segment.next_offset = old[-1].next_offset
    segment.created_ms = replacement.created_ms
    segment.is_dense = False
    discarded = log.segments.replace(old, segment)
    log.discard_files(discarded)
    return True
