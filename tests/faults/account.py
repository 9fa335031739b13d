"""Compares acknowledged records with stored records after a fault. Pure functions and values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

from benchmarks.steady_load import PartitionAccount

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class Findings:
    """Numbers of records.

    `lost`: acknowledged but not stored. `misplaced`: stored, but not at the acknowledged offset.
    `duplicated`: copies beyond the first. `gaps`: offsets without a record. `disordered`: stored after a
    record that was sent later. `invented`: stored but never sent.
    """

    acknowledged: int = 0
    consumed: int = 0
    lost: int = 0
    duplicated: int = 0
    misplaced: int = 0
    gaps: int = 0
    disordered: int = 0
    invented: int = 0

    def __add__(self, other: Self) -> Self:
        names = [field.name for field in fields(self)]
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def faults(self) -> dict[str, int]:
        """The counts that should be zero and are not, by name."""
        return counts_above_zero(self, allowed=("acknowledged", "consumed"))


def counts_above_zero(counts: DataclassInstance, *, allowed: Collection[str]) -> dict[str, int]:
    """The fields of `counts` that are not zero, by name, without those whose names are in `allowed`."""
    values = {field.name: getattr(counts, field.name) for field in fields(counts)}
    return {name: value for name, value in values.items() if value and name not in allowed}


def compare(account: PartitionAccount, stored: Sequence[tuple[int, int]]) -> Findings:
    """The findings about one partition. `stored` lists its records in order, each as (offset, number)."""
    places: dict[int, list[int]] = {}
    for offset, number in stored:
        places.setdefault(number, []).append(offset)
    lost = misplaced = 0
    for number, acknowledged in account.acknowledged.items():
        if number not in places:
            lost += 1
        elif acknowledged.offset is not None and acknowledged.offset not in places[number]:
            misplaced += 1
    sent = len(account.sent_at)
    numbers = [number for _, number in stored]
    highest, disordered = -1, 0
    for number in numbers:
        disordered += number < highest
        highest = max(highest, number)
    return Findings(
        acknowledged=len(account.acknowledged),
        consumed=len(stored),
        lost=lost,
        duplicated=len(numbers) - len(places),
        misplaced=misplaced,
        gaps=(stored[-1][0] + 1 if stored else 0) - len({offset for offset, _ in stored}),
        disordered=disordered,
        invented=sum(not 0 <= number < sent for number in places),
    )
