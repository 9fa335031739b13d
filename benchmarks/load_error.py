"""The error of a benchmark whose load failed."""

from __future__ import annotations


class LoadError(RuntimeError):
    """The broker refused or lost something that a load sent or wanted to read.

    The run says nothing about speed.
    """
