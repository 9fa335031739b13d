"""The arguments of public methods: what each may be, checked where it is given.

    @checked(partition=A_PARTITION, offset=AN_OFFSET)
    def seek(self, partition: TopicPartition, offset: int) -> None: ...

A `Kind` says in words what is wanted, and makes of what was given the value that the method uses. For a value
that it refuses, TypeError (another type) or ValueError (out of range) is raised before anything has happened:
the object works on as before. The error names the method and the argument, says what is wanted and what was
given, and for common mistakes what to write instead.

Methods that are called for every message check where they notice anyway, with the same kinds (`Kind.check`).
"""

from __future__ import annotations

import operator
import os
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast
from uuid import UUID

from holdfast_log.protocol.topic_partition import TopicPartition

P = ParamSpec("P")
R = TypeVar("R")

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_SHOWN_CHARACTERS = 100


class Refused(Exception):
    """What a kind raises for a value of another type. `hint` says what to write instead, if that is known;
    `wanted` replaces the kind's own words, `value` the value to be shown."""

    error: type[Exception] = TypeError

    def __init__(self, hint: str = "", *, wanted: str = "", value: Any = ...) -> None:
        super().__init__(hint)
        self.hint = hint
        self.wanted = wanted
        self.value = value


class OutOfRange(Refused):
    """What a kind raises for a value of the right type that is not allowed."""

    error = ValueError


@dataclass(frozen=True, slots=True)
class Kind:
    """What an argument may be: `wanted` in words, as in "offset must be {wanted}", and `take`, which returns
    the value to use, and raises Refused for any other."""

    wanted: str
    take: Callable[[Any], Any]

    def check(self, where: str, name: str, value: Any) -> Any:
        """The value to use for the argument `name`. Raises TypeError or ValueError."""
        try:
            return self.take(value)
        except Refused as refusal:
            raise self.error(where, name, value, refusal) from None

    def error(self, where: str, name: str, value: Any, refusal: Refused) -> Exception:
        """The error for a value that was refused."""
        given = value if refusal.value is ... else refusal.value
        place = f"{where}: {name}" if where else name
        hint = f": {refusal.hint}" if refusal.hint else ""
        return refusal.error(f"{place} must be {refusal.wanted or self.wanted}, not {shown(given)}{hint}")


def shown(value: Any) -> str:
    """A value in an error: its type and, shortened, its text."""
    try:
        text = repr(value)
    except Exception:
        text = "(its repr() fails)"
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}..."
    return text if value is None else f"{type(value).__name__} {text}"


def checked(**kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Checks the arguments of a method, those given by position and those given by name.

    An argument with a default may be left out, whatever its kind. A `*name` parameter has the kind of each
    of its values.
    """

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        code = method.__code__
        names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount]
        in_order = tuple((name, kinds.get(name, ANYTHING)) for name in names)
        count = len(in_order)
        has_rest = bool(code.co_flags & _HAS_REST)
        rest_name = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if has_rest else ""
        rest = (rest_name, kinds.get(rest_name, ANYTHING))
        unknown = kinds.keys() - {*code.co_varnames}
        assert not unknown or code.co_flags & _HAS_MORE_NAMED, (
            f"{code.co_qualname} has no arguments {unknown}"
        )

        def guarded(self: Any, /, *arguments: Any, **named: Any) -> Any:
            name, kind, value = "", ANYTHING, None
            try:
                given = []
                for place, value in enumerate(arguments):
                    name, kind = in_order[place] if place < count else rest
                    given.append(kind.take(value))
                for name, value in named.items():
                    kind = kinds.get(name, ANYTHING)
                    named[name] = kind.take(value)
            except Refused as refusal:
                raise kind.error(_called(self, method), name, value, refusal) from None
            return method(self, *given, **named)

        wrapped = wraps(method)(guarded)
        wrapped.__dict__["kinds"] = kinds
        return cast("Callable[P, R]", wrapped)

    return decorate


_HAS_REST, _HAS_MORE_NAMED = 0x04, 0x08
"""Flags of code with a `*name` and a `**name` parameter."""


def _called(owner: Any, method: Callable[..., Any]) -> str:
    """A method as the application has called it."""
    name = type(owner).__name__
    return f"{name}()" if method.__name__ == "__init__" else f"{name}.{method.__name__}()"


def no_attribute(owner: object, name: str, instead: Mapping[str, str]) -> AttributeError:
    """The error for an attribute that an object does not have. `instead` has what to write for the methods of
    other Kafka clients."""
    hint = f": write {instead[name]}" if name in instead else ""
    return AttributeError(f"{type(owner).__name__} has no {name}{hint}", name=name, obj=owner)


# Kinds ------------------------------------------------------------------------------------------------


def optional(kind: Kind) -> Kind:
    """None, or what `kind` takes."""
    take = kind.take
    return Kind(f"{kind.wanted}, or None", lambda value: None if value is None else take(value))


def an_instance(cls: type, wanted: str = "") -> Kind:
    """An object of a class."""

    def take(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        raise Refused

    article = "an" if cls.__name__[0] in "AEIO" else "a"
    return Kind(wanted or f"{article} {cls.__name__}", take)


def an_int(wanted: str, low: int, high: int, hint: Callable[[Any], str] = lambda _: "") -> Kind:
    """A whole number between two bounds, both inclusive. `hint` says for a refused value what to write."""

    def take(value: Any) -> int:
        number: int = value if type(value) is int else _as_int(value, hint)
        if low <= number <= high:
            return number
        raise OutOfRange(hint(value))

    return Kind(wanted, take)


def _as_int(value: Any, hint: Callable[[Any], str]) -> int:
    """An int of another class, such as a number of an array library. True and False are no numbers."""
    if not isinstance(value, bool | bytes | str | float):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise Refused(hint(value))


def several(kind: Kind, of: str, example: str) -> Kind:
    """A list, or another collection, of what `kind` takes. `of` names them in the plural."""

    def take(value: Any) -> list[Any]:
        if isinstance(value, str | bytes | bytearray) or hasattr(value, "_fields"):
            raise Refused(f"write {example}")
        if not isinstance(value, Iterable):
            raise Refused(f"write {example}")
        taken = []
        for each in value:
            try:
                taken.append(kind.take(each))
            except Refused as refusal:
                refusal.wanted = f"a list that contains only {of}"
                refusal.value = each if refusal.value is ... else refusal.value
                raise
        return taken

    return Kind(f"a list, or another collection, of {of}", take)


def mapping(key: Kind, value: Kind, example: str) -> Kind:
    """A dict from what `key` takes to what `value` takes."""

    def take(given: Any) -> dict[Any, Any]:
        if not isinstance(given, Mapping):
            raise Refused(f"write {example}")
        taken = {}
        for each, of_it in given.items():
            taken[_part(key, each, "a dict whose keys are each")] = _part(
                value, of_it, "a dict whose values are each"
            )
        return taken

    return Kind(f"a dict, as in {example}", take)


def _part(kind: Kind, value: Any, words: str) -> Any:
    try:
        return kind.take(value)
    except Refused as refusal:
        refusal.wanted = f"{words} {refusal.wanted or kind.wanted}"
        refusal.value = value if refusal.value is ... else refusal.value
        raise


def _take_text(value: Any) -> str:
    if not isinstance(value, str):
        hint = "write .decode() behind it" if isinstance(value, bytes) else ""
        raise Refused(hint)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise OutOfRange("it has half a surrogate pair, which UTF-8 cannot express") from None
    return value


def _take_name(value: Any) -> str:
    if not _take_text(value):
        raise OutOfRange("it is empty")
    return cast("str", value)


def _take_partition(value: Any) -> TopicPartition:
    if not isinstance(value, tuple) or len(value) != 2 or hasattr(value, "offset"):
        raise Refused(_partition_hint(value))
    try:
        topic, number = _take_name(value[0]), PARTITION_NUMBER.take(value[1])
    except OutOfRange:
        what = f"{value[1]} is no partition's number" if value[0] else "the topic is empty"
        raise OutOfRange(what) from None
    except Refused:
        raise Refused(_partition_hint(value)) from None
    if type(value) is TopicPartition and type(value[1]) is int:
        return value
    return TopicPartition(topic, number)


def _partition_hint(value: Any) -> str:
    topic, number = getattr(value, "topic", None), getattr(value, "partition", None)
    if isinstance(topic, str) and isinstance(number, int):
        return f"write TopicPartition({topic!r}, {number})"
    return "write TopicPartition('topic', 0)"


def _take_function(value: Any) -> Any:
    if callable(value):
        return value
    raise Refused


def _take_flag(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise Refused


def _seconds_hint(value: Any) -> str:
    if isinstance(value, float):
        return f"times are in ms: write {round(value * 1000)} for {value} s" if 0 <= value < 1e6 else ""
    return "None stands for no limit of its own" if isinstance(value, int) else ""


def _take_column(value: Any) -> Any:
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise Refused(f"write [{value!r}] for one" if isinstance(value, str | bytes) else "")
    return value


def _take_properties(value: Any) -> Any:
    if not isinstance(value, Mapping | str | os.PathLike):
        raise Refused('write {"bootstrap.servers": "localhost:9092"}')
    return value


def _take_network(value: Any) -> Any:
    if all(hasattr(value, name) for name in ("connect", "wait", "wake", "now_ms")):
        return value
    raise Refused("leave it out, except in simulations")


def _take_uuid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    raise Refused(f"write UUID({value!r})" if isinstance(value, str) else "")


ANYTHING: Final = Kind("anything", lambda value: value)
A_TEXT: Final = Kind("a str", _take_text)
A_NAME: Final = Kind("a str that is not empty", _take_name)
A_FUNCTION: Final = Kind("a function, or another object that can be called", _take_function)
A_FLAG: Final = Kind("True or False", _take_flag)
PARTITION_NUMBER: Final = an_int("the number of a partition, an int from 0 on", 0, INT_MAX)
A_PARTITION: Final = Kind("a TopicPartition", _take_partition)
PARTITIONS: Final = several(
    A_PARTITION, "TopicPartition(topic, partition)", "[TopicPartition('topic', 0), ...]"
)
A_WAIT: Final = an_int(f"a time in ms, an int from 0 to {INT_MAX}", 0, INT_MAX, _seconds_hint)
A_TIMEOUT: Final = optional(A_WAIT)
AN_OFFSET: Final = an_int("an offset, an int from 0 on", 0, LONG_MAX)
A_TIMESTAMP: Final = an_int(
    "a timestamp in ms since 1970, an int from 0 on",
    0,
    LONG_MAX,
    lambda value: f"write int({value!r} * 1000) if it is in seconds" if isinstance(value, float) else "",
)
A_COLUMN: Final = Kind("a list, or another collection, of messages' keys or values", _take_column)
A_UUID: Final = Kind("a UUID, as Admin.describe_topics() returns it", _take_uuid)
PROPERTIES: Final = Kind("a dict of properties, or the path of a properties file", _take_properties)
A_NETWORK: Final = Kind("a ClientNetwork", _take_network)
AN_RNG: Final = an_instance(random.Random)
FOR_SIMULATIONS: Final = {"network": optional(A_NETWORK), "rng": optional(AN_RNG), "is_threaded": A_FLAG}
"""What the constructors of clients have in common for simulations."""
