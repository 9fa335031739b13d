"""A serialized message on its way into a batch."""

from __future__ import annotations

from typing import TypeAlias

SerializedRecord: TypeAlias = tuple[int, bytes | None, bytes | None, bytes, int]
"""(timestamp in ms, key, value, encoded headers or b"", about how many bytes the record takes in a batch).

A plain tuple, because one is made for every message: a class of our own would cost several times as much.
"""
