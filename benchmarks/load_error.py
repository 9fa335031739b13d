"""Why a benchmark has no figure."""

from __future__ import annotations


class LoadError(RuntimeError):
    """The broker refused or lost something that a load sent or wanted to read.

    The run says nothing about speed.
    """
