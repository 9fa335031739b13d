"""The segments of one log in offset order; their files hold its batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from holdfast_log.broker.log import names
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.log.snapshots import snapshot_path


class Segments(Sequence[Segment]):
    """The segments, oldest first. The last one, `active`, takes the appends. File errors raise OSError."""

    def __init__(self, segments: Sequence[Segment], directory: str, files: OpenFiles) -> None:
        assert segments, "a log has an active segment"
        self.active = segments[-1]
        self._segments = list(segments)
        self._base_offsets = [segment.base_offset for segment in segments]
        self._directory = directory
        self._files = files
        self._to_replace: Sequence[Segment] = ()
        """Segments that recovery would replace now, because a `.swap` file covers them."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...

    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...

    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """The last segment that begins at or before `offset`, and all later ones."""
        first = max(0, bisect_right(self._base_offsets, offset) - 1)
        for number in range(first, len(self._segments)):
            yield self._segments[number]

    def before(self, offset: int) -> list[Segment]:
        """Segments whose batches all lie before `offset`, because the next segment begins at or before it."""
        return self._segments[: max(0, bisect_right(self._base_offsets, offset) - 1)]

    def beginning_at(self, offset: int) -> list[Segment]:
        """Segments that begin at `offset` or later."""
        return self._segments[bisect_right(self._base_offsets, offset - 1) :]

    def add(self, base_offset: int, settings: LogSettings, now_ms: int) -> None:
        """Begin a new, empty segment, which becomes the active one."""
        self.active = Segment.create(self._files, self._directory, base_offset, settings, now_ms)
        self._segments.append(self.active)
        self._base_offsets.append(base_offset)

    def remove(self, segments: Iterable[Segment]) -> list[str]:
        """Remove segments one by one, renaming their files to `.deleted`. Returns the new paths of the files.

        If the active segment is among them, the caller must call `add` or `reopen` next.
        """
        renamed: list[str] = []
        for segment in segments:
            if segment in self._to_replace:
                self.cancel_replacement()
            number = self._segments.index(segment)
            del self._segments[number]
            del self._base_offsets[number]
            segment.release()
            paths = (*segment.paths(), snapshot_path(self._directory, segment.base_offset))
            self._mark_deleted(paths, renamed)
        return renamed

    def _mark_deleted(self, paths: Iterable[str], renamed: list[str]) -> None:
        disk = self._files.disk
        for path in paths:
            self._files.forget(path)
            if disk.exists(path):
                disk.rename(path, path + names.DELETED)
                renamed.append(path + names.DELETED)

    # Replacing segments by what compaction has left of them: see `broker.log.replacement`.

    def begin_replacement(self, old: Sequence[Segment]) -> None:
        """Rename the complete `.cleaned` file, which has the records of these segments, to `.swap`. From now
        on recovery replaces them by it."""
        self._files.disk.rename(old[0].path + names.CLEANED, old[0].path + names.SWAP)
        self._to_replace = tuple(old)

    def cancel_replacement(self) -> None:
        """Keep the segments that `begin_replacement` was called with, because they are about to change. No
        effect if there are none."""
        if self._to_replace:
            self._files.disk.remove(self._to_replace[0].path + names.SWAP)
            # A power failure that brings the file back would undo what is appended after the change.
            self.active.needs_directory_sync = True
            self._to_replace = ()

    def may_replace(self, old: Sequence[Segment]) -> bool:
        """Whether `begin_replacement` was called with these segments, and nothing has cancelled it since."""
        return bool(old) and tuple(old) == tuple(self._to_replace)

    def replace(self, old: Sequence[Segment], new: Segment) -> list[str]:
        """Put `new`, whose log is in the `.swap` file, in the place of adjacent segments, whose files get the
        suffix `.deleted`. Returns their new paths. `may_replace` must be true."""
        assert self.may_replace(old), "the replacement has not begun"
        disk, renamed = self._files.disk, list[str]()
        # Oldest first: while the first one's log is there, recovery knows that all are.
        for segment in old:
            segment.release()
            paths = segment.paths()
            if segment is old[0]:
                paths.remove(segment.path_of(names.TRANSACTION_INDEX))
            else:
                paths.append(snapshot_path(self._directory, segment.base_offset))
            self._mark_deleted(paths, renamed)
        for kind in (names.INDEX, names.TIME_INDEX):
            disk.rename(new.path_of(kind) + names.CLEANED, new.path_of(kind))
        disk.rename(new.path + names.SWAP, new.path)
        new.needs_directory_sync = True
        first = self._segments.index(old[0])
        self._segments[first : first + len(old)] = [new]
        self._base_offsets[first : first + len(old)] = [new.base_offset]
        self._to_replace = ()
        return renamed

    def reopen(self) -> None:
        """Make the last remaining segment the active one."""
        needs_sync = self.active.needs_directory_sync
        self.active = self._segments[-1]
        self.active.needs_directory_sync |= needs_sync

    def use_files(self, files: OpenFiles) -> None:
        """Open files through `files` from now on, and close those opened before."""
        self._files = files
        for segment in self._segments:
            segment.use_files(files)

    def release(self) -> None:
        """Close all files without writing anything."""
        for segment in self._segments:
            segment.release()
            self._files.forget(segment.indexes.offsets.path)
            self._files.forget(segment.indexes.times.path)

    def move(self, directory: str) -> None:
        """Use the new name of the directory, after it was renamed."""
        self._directory = directory
        for segment in self._segments:
            segment.move(directory)
