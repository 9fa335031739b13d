"""Coroutines made of an ordinary client's methods, with the same arguments, results and documentation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def awaited(
    method: Callable[Concatenate[Any, P], R], *, may_nest: bool = True
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The coroutine that calls a method of the client in its thread: `self._call` does that. `may_nest` is
    whether that may happen while the client waits for a callback."""
    name = method.__name__

    @wraps(method)
    async def call(self: Any, /, *arguments: P.args, **named: P.kwargs) -> R:
        bound = partial(getattr(self._client, name), *arguments, **named)
        result: R = await (self._call(bound) if may_nest else self._call(bound, may_nest=False))
        return result

    return call


def passed_on(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """The method of an asyncio client that calls a method of the client which never waits."""
    name = method.__name__

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **named: P.kwargs) -> R:
        result: R = getattr(self._client, name)(*arguments, **named)
        return result

    return call
