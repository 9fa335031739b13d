"""Tables in plain text, as Kafka's tools print them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTHING = "-"
"""Printed in place of an unknown value."""
_WIDTH_MIN = 15


def tabbed_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Titles and rows in columns as wide as their content, each with a tab behind it, as some of
    Kafka's tools print them."""
    cells = [list(titles), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    return "\n".join(
        "".join(cell.ljust(width) + "\t" for cell, width in zip(row, widths, strict=True)) for row in cells
    )


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Titles and rows in columns as wide as their content; all columns but the last are padded."""
    cells = [list(titles), *([NOTHING if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(_WIDTH_MIN, *(len(row[column]) for row in cells)) for column in range(len(titles))]
    return "\n".join(
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
