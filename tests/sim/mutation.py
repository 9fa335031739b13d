"""A known bug to put back: functions of the real code that are replaced while seeds run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.sim.plan import THREE, Shape

Patch = tuple[Any, str, Any]
"""An object, the name of its attribute, and what to put there."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A bug: its name, what it does, and how it is made."""

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
