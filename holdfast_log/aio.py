"""The clients for asyncio.

    from holdfast_log.aio import AsyncConsumer, AsyncProducer

Messages, errors and all else that they take and return are those of the ordinary clients, from
`holdfast_log`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# For type checkers. At run time `_MODULES` names the same modules: tests/clients/test_public_api.py compares.
if TYPE_CHECKING:
    from holdfast_log.clients.aio.admin import AsyncAdmin as AsyncAdmin
    from holdfast_log.clients.aio.consumer import AsyncConsumer as AsyncConsumer
    from holdfast_log.clients.aio.exclusive_consumer import AsyncExclusiveConsumer as AsyncExclusiveConsumer
    from holdfast_log.clients.aio.exclusive_producer import AsyncExclusiveProducer as AsyncExclusiveProducer
    from holdfast_log.clients.aio.listener import AsyncRebalanceListener as AsyncRebalanceListener
    from holdfast_log.clients.aio.producer import (
        AsyncProducer as AsyncProducer,
    )
    from holdfast_log.clients.aio.producer import (
        AsyncTransaction as AsyncTransaction,
    )

_MODULES = {
    "clients.aio.admin": ("AsyncAdmin",),
    "clients.aio.consumer": ("AsyncConsumer",),
    "clients.aio.exclusive_consumer": ("AsyncExclusiveConsumer",),
    "clients.aio.exclusive_producer": ("AsyncExclusiveProducer",),
    "clients.aio.listener": ("AsyncRebalanceListener",),
    "clients.aio.producer": ("AsyncProducer", "AsyncTransaction"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"holdfast_log.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
