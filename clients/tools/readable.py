"""Keys and values as text, by the names of Kafka's deserializers: for tools that print them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias
from uuid import UUID

import click

Readable: TypeAlias = Callable[[bytes], bytes]
"""Makes what is printed of a key or value. Raises ValueError for one that is of another type."""

_PACKAGE = "org.apache.kafka.common.serialization."
_SUFFIX = "Deserializer"


def _as_it_is(content: bytes) -> bytes:
    return content


def _number(name: str, form: str) -> Readable:
    packed = struct.Struct(form)

    def readable(content: bytes) -> bytes:
        if len(content) != packed.size:
            raise ValueError(f"it has {len(content)} bytes, and {name} needs {packed.size}")
        (number,) = packed.unpack(content)
        return str(number).encode()

    return readable


def _boolean(content: bytes) -> bytes:
    if content not in (b"\0", b"\1"):
        raise ValueError("Boolean needs one byte, 0 or 1")
    return b"true" if content == b"\1" else b"false"


def _uuid(content: bytes) -> bytes:
    """Kafka writes a UUID as text."""
    return str(UUID(content.decode())).encode()


READABLE: Mapping[str, Readable] = MappingProxyType({
    "String": _as_it_is,
    "Bytes": _as_it_is,
    "ByteArray": _as_it_is,
    "Short": _number("Short", ">h"),
    "Integer": _number("Integer", ">i"),
    "Long": _number("Long", ">q"),
    "Float": _number("Float", ">f"),
    "Double": _number("Double", ">d"),
    "Boolean": _boolean,
    "UUID": _uuid,
})  # fmt: skip
"""By the name of Kafka's class, without its package and `Deserializer`."""


def readable_by(name: str, option: str) -> Readable:
    """The function for the name of a class of Kafka's, with or without its package and `Deserializer`: Long
    and long will do. Raises click.UsageError."""
    wanted = name.removeprefix(_PACKAGE).removesuffix(_SUFFIX).lower()
    for known, readable in READABLE.items():
        if known.lower() == wanted:
            return readable
    raise click.UsageError(
        f"{option} {name}: the deserializers are {', '.join(READABLE)}, each with Deserializer and "
        f"{_PACKAGE} around it or not"
    )
