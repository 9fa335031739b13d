"""All bugs that are put into the compiled code."""

from __future__ import annotations

from tests.mutated_c import appends, fetches, records
from tests.mutated_c.bug import Bug

BUGS: tuple[Bug, ...] = (*appends.BUGS, *fetches.BUGS, *records.BUGS)


def by_name(name: str) -> Bug:
    """The bug of that name. Raises KeyError if there is none."""
    return {bug.name: bug for bug in BUGS}[name]
