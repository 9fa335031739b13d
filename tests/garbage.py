"""Python's garbage collector, switched off: what is freed then was in no reference cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Collect all garbage, then none until the block ends."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
