"""Mutations that a test has to notice: a function or a limit is replaced by what it must not be."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def assert_missed(
    monkeypatch: pytest.MonkeyPatch,
    caught: tuple[type[Exception], ...],
    place: object,
    attribute: str,
    mutant: object,
    check: Callable[[], object],
) -> None:
    """`check` passes, and fails with one of `caught` once `mutant` is in the place of the attribute."""
    check()
    monkeypatch.setattr(place, attribute, mutant)
    with pytest.raises(caught):
        check()
