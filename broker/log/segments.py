"""The segments of one log in offset order; their files hold its batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from broker.log import names
from broker.log.open_files import OpenFiles
from broker.log.segment import Segment
from broker.log.settings import LogSettings
from broker.log.snapshots import snapshot_path


class Segments(Sequence[Segment]):
    """The segments, oldest first. The last one, `active`, takes the appends. File errors raise OSError."""

    def __init__(self, segments: Sequence[Segment], directory: str, files: OpenFiles) -> None:
        assert segments, "a log has an active segment"
        self.active = segments[-1]
        self._segments = list(segments)
        self._base_offsets = [segment.base_offset for segment in segments]
        self._directory = directory
        self._files = files

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
        disk = self._files.disk
        renamed = []
        for segment in segments:
            number = self._segments.index(segment)
            del self._segments[number]
            del self._base_offsets[number]
            segment.release()
            for path in (*segment.paths(), snapshot_path(self._directory, segment.base_offset)):
                self._files.forget(path)
                if disk.exists(path):
                    disk.rename(path, path + names.DELETED)
                    renamed.append(path + names.DELETED)
        return renamed

    def reopen(self) -> None:
        """Make the last remaining segment the active one."""
        self.active = self._segments[-1]

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
