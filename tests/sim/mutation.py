"""A mutation: a known bug put back by replacing functions of the real code while seeds run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from tests.sim.plan import THREE, Shape
from tests.sim.stand_ins import Patch as Patch
from tests.sim.stand_ins import switches_for


@dataclass(frozen=True, slots=True)
class Mutation:
    """A known bug: its name, its effect, and the patches that put it back."""

    name: str
    what: str
    patches: Callable[[], Sequence[Patch]]
    shape: Shape = THREE


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Put the bug back meanwhile. Compiled code that does the work of a replaced function is switched off."""
    replaced = mutation.patches()
    patches = [mock.patch.object(*patch) for patch in (*replaced, *switches_for(replaced))]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()
