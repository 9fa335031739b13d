"""Reads one range of offsets, exactly: what a Spark task does."""

from __future__ import annotations
