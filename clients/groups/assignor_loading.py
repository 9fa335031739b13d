"""Finds the assignors that `partition.assignment.strategy` names.

Kafka's four are built in. `module:attribute` names another: a class that is called without arguments.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.groups.assignors import Assignor, RangeAssignor, RoundRobinAssignor
from holdfast_log.clients.groups.sticky import CooperativeStickyAssignor, StickyAssignor


def load_assignors(names: Sequence[str]) -> tuple[Assignor, ...]:
    """The assignors of these names, in the same order.

    Also accepts the names of Kafka's classes. Raises ConfigError for an unknown name and for an empty list.
    """
    built_in: dict[str, type[Assignor]] = {
        kind.name: kind
        for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
    }
    by_class = {kind.__name__: kind for kind in built_in.values()}
    found: list[Assignor] = []
    for name in names:
        kind = built_in.get(name) or by_class.get(name.rpartition(".")[2])
        found.append(_imported(name, list(built_in)) if kind is None else kind())
    if not found:
        raise ConfigError(
            "partition.assignment.strategy is empty: set it to at least one assignor, such as range"
        )
    return tuple(found)


def _imported(name: str, built_in: list[str]) -> Assignor:
    module, colon, attribute = name.partition(":")
    try:
        if not colon:
            raise ImportError(name)
        assignor: Assignor = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"partition.assignment.strategy={name} is unknown: expected {', '.join(built_in)}, "
            f"or module:class of an assignor that can be imported ({error})"
        ) from None
    return assignor
