"""The rows of a campaign in a file, so that a campaign that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.hostile.neighbour import Pace
from tests.hostile.report import Row

_PACES = ("before", "during", "controller")


class KeptRows:
    """The rows so far, by API and version. Without a path they are kept in memory alone."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._rows: dict[tuple[str, int], Row] = {}
        if path is not None and path.exists():
            whole, _, rest = path.read_text().rpartition("\n")
            if rest:  # The campaign was interrupted while it wrote.
                path.write_text(whole + "\n" if whole else "")
            for line in whole.splitlines():
                self._keep(_row(json.loads(line)))

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def has(self, api: str, version: int) -> bool:
        return (api, version) in self._rows

    def add(self, row: Row) -> None:
        """Keep a row, in the place of an earlier one of its version."""
        self._keep(row)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")

    def _keep(self, row: Row) -> None:
        self._rows[row.api, row.version] = row


def _row(values: dict[str, Any]) -> Row:
    return Row(**{name: Pace(**value) if name in _PACES else value for name, value in values.items()})
