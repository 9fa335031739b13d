"""Builds the handlers of all APIs: finds every module of broker/handlers, and fills each field of its handler
by the field's type.

So a new API needs only a message file and a handler file. A field's type may be that of any field of the
broker's parts, a settings group, or `Live` of one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

from holdfast_log.broker import handlers
from holdfast_log.broker.requests.dispatch import AnyHandler
from holdfast_log.broker.requests.handler import Handler
from holdfast_log.broker.setting_groups import Live, is_settings_group, read_group

HandlerType: TypeAlias = "type[Handler[Any, Any]]"


class WiringError(TypeError):
    """A handler cannot be built; the message names the handler and its field."""


@cache
def handler_types() -> tuple[HandlerType, ...]:
    """The handlers in broker/handlers, in the order of their modules' names."""
    modules = [
        importlib.import_module(f"{handlers.__name__}.{found.name}")
        for found in pkgutil.iter_modules(handlers.__path__)
    ]
    return tuple(
        candidate
        for module in modules
        for candidate in vars(module).values()
        if isinstance(candidate, type)
        and issubclass(candidate, Handler)
        and candidate.__module__ == module.__name__
    )


_declared: Callable[[type], Mapping[str, Any]] = cache(get_type_hints)
"""The types that a class declares for its fields. Cached, since tests build many brokers in one process."""


def build_handlers(
    types: Iterable[HandlerType], parts: Iterable[Any], settings: Mapping[str, Any]
) -> list[AnyHandler]:
    """One handler of each type, built from the fields of `parts`, which are dataclasses.

    `settings` are the values in force. Raises WiringError for a field whose type no field of the parts
    provides, or more than one.
    """
    provided: dict[Any, list[tuple[str, Any]]] = {}
    for part in parts:
        declared = _declared(type(part))
        for each in fields(part):
            where = f"{type(part).__name__}.{each.name}"
            provided.setdefault(declared[each.name], []).append((where, getattr(part, each.name)))
    return [_build(handler, provided, settings) for handler in types]


def _build(
    handler: HandlerType, provided: Mapping[Any, list[tuple[str, Any]]], settings: Mapping[str, Any]
) -> AnyHandler:
    wanted = _declared(handler)
    names: list[str] = [each.name for each in fields(handler) if each.init] if is_dataclass(handler) else []
    return handler(
        **{name: _resolve(wanted[name], f"{handler.__name__}.{name}", provided, settings) for name in names}
    )


def _resolve(
    wanted: Any, where: str, provided: Mapping[Any, list[tuple[str, Any]]], settings: Mapping[str, Any]
) -> Any:
    if get_origin(wanted) is Live:
        (group,) = get_args(wanted)
        return Live(group, settings)
    found = provided.get(wanted, [])
    if len(found) > 1:
        names = ", ".join(name for name, _ in found)
        raise WiringError(f"{where}: {wanted} is provided more than once, by {names}")
    if found:
        return found[0][1]
    if is_settings_group(wanted):
        return read_group(wanted, settings)
    raise WiringError(f"{where}: nothing provides {wanted}")
