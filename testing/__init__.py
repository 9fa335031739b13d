"""For the tests of applications: brokers in memory, a pytest plugin with real ones, and a container.

    FakeCluster                     brokers in memory, for unit tests (extra `server`)
    plugin                          fixtures of pytest with a real cluster (extra `testing`)
    containers.HoldfastContainer    a broker in a container, by testcontainers

docs/testing.md explains them. Importing this package imports nothing else: the rest is imported when used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast_log.testing.requirements import require_server

if TYPE_CHECKING:
    from holdfast_log.testing.fakes.fake_cluster import FakeCluster as FakeCluster

__all__ = ["FakeCluster"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use. Raises ImportError if packages of the server are missing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_server("FakeCluster")
    value = importlib.import_module("holdfast_log.testing.fakes.fake_cluster").FakeCluster
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
