"""A mutation: a known bug put back by replacing functions of the real code while seeds run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.sim.plan import THREE, Shape

Patch = tuple[Any, str, Any]
"""An object, the name of one of its attributes, and the attribute's new value."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A known bug: its name, its effect, and the patches that put it back."""

    name: str
    what: str
    patches: Callable[[], Sequence[Patch]]
    shape: Shape = THREE


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    patches = [mock.patch.object(*patch) for patch in mutation.patches()]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()
