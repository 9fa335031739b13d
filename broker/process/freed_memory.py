"""Returns memory that is no longer used to the system.

The C library keeps what is freed between pieces that are still used, and once a large buffer was freed it
takes later ones of that size from there, too. So what clients have sent once, or were answered, stays the
process's: after 450 MB of Produce requests with names of 30 KB a broker had 67 MB more than before, of which
43 MB were free. `malloc_trim` returns the free pages.

A worker calls it where the process has grown, or more is free, than after the last call, every `PERIOD_MS` at
most: for 16 MB it takes about a millisecond, for 200 MB twelve, in which the reactor may wait for memory. To
look at the growth alone would not do: what was used at the last call may be free now, and be kept. Nor would
what is free: the library counts pages that it has returned.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.defer import ensureDeferred

from holdfast_log.broker.process.periodic import Periodic
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.clock import Clock

PERIOD_MS = 5_000
"""Time in ms between two looks at the memory of the process."""

GROWTH_BYTES = 16 << 20
"""The growth, of the process or of what is free, after which memory is returned."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """`resident_bytes`: what only this process uses, without the pages of mapped files. `free_bytes`: what
    the C library keeps, or has returned, between pieces that are used."""

    resident_bytes: int
    free_bytes: int

    def least(self, other: MemoryUse) -> MemoryUse:
        """The lower of both figures."""
        return MemoryUse(
            min(self.resident_bytes, other.resident_bytes), min(self.free_bytes, other.free_bytes)
        )

    def has_grown(self, since: MemoryUse) -> bool:
        """Whether enough may be free to be returned."""
        return (
            self.resident_bytes - since.resident_bytes >= GROWTH_BYTES
            or self.free_bytes - since.free_bytes >= GROWTH_BYTES
        )


class Allocator(Protocol):
    """What the process has taken from the system, and returns to it. Both may be called in any thread."""

    def use(self) -> MemoryUse: ...

    def trim(self) -> None:
        """Return what is free. Takes milliseconds."""
        ...


class FreedMemory:
    """Has workers return the memory that was freed, until the process ends."""

    def __init__(self, clock: Clock, workers: Workers, allocator: Allocator) -> None:
        self._periodic = Periodic(clock)
        self._workers = workers
        self._allocator = allocator
        self._least: MemoryUse | None = None
        """Since memory was last returned."""
        self._is_looking = False

    def begin(self) -> None:
        """Look from now on."""
        self._periodic.add(PERIOD_MS, self._look)

    def _look(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            ensureDeferred(self._return_growth()).addBoth(self._looked)

    async def _return_growth(self) -> None:
        now = await self._workers.run(self._allocator.use)
        self._least = now if self._least is None else now.least(self._least)
        if now.has_grown(self._least):
            await self._workers.run(self._allocator.trim)
            self._least = await self._workers.run(self._allocator.use)

    def _looked(self, result: object) -> object:
        self._is_looking = False
        return result


class _Counts(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
            "keepcost",
        )
    ]  # fmt: skip


class SystemAllocator:
    """The C library's. Without `mallinfo2`, which glibc has since 2.33, nothing counts as free."""

    def __init__(self, library: Any) -> None:
        self._trim = library.malloc_trim
        self._trim.argtypes = [ctypes.c_size_t]
        self._counts = getattr(library, "mallinfo2", None)
        if self._counts is not None:
            self._counts.restype = _Counts

    def use(self) -> MemoryUse:
        _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
        free_bytes = 0 if self._counts is None else self._counts().fordblks
        return MemoryUse((int(resident) - int(shared)) * mmap.PAGESIZE, free_bytes)

    def trim(self) -> None:
        self._trim(0)


def system_allocator() -> SystemAllocator | None:
    """The allocator of this process; None where the C library has no `malloc_trim`."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim") or not Path("/proc/self/statm").exists():
        return None
    return SystemAllocator(library)
