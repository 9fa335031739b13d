"""Declared fields: wire type, the versions that have the field, default.

The wire type comes from the field's annotation: `Int32` is an int in Python and four bytes on the wire.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeAlias
from uuid import UUID

from holdfast_log.protocol.frames import FileSlice, Parts

ZERO_UUID = UUID(int=0)
"""Kafka's "no id"."""


class SchemaError(TypeError):
    """An invalid declaration: a programming error, found when the module is imported."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions `first` to `last`, both included. `NO_VERSIONS` holds none."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Kafka's notation: "3", "0-5", "4+" or "none"."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), LAST_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> typing.Iterator[int]:
        return iter(range(self.first, self.last + 1))


LAST_VERSION = 0x7FFF
ALL_VERSIONS = Versions(0, LAST_VERSION)
NO_VERSIONS = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value of fixed width (`size` bytes). `code` is its letter in the `struct` module's formats."""

    name: str
    code: str
    size: int
    default: object


class Variable(Enum):
    """A value preceded by its length."""

    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"


BOOLEAN = Fixed("bool", "?", 1, False)
INT8 = Fixed("int8", "b", 1, 0)
INT16 = Fixed("int16", "h", 2, 0)
UINT16 = Fixed("uint16", "H", 2, 0)
INT32 = Fixed("int32", "i", 4, 0)
UINT32 = Fixed("uint32", "I", 4, 0)
INT64 = Fixed("int64", "q", 8, 0)
FLOAT64 = Fixed("float64", "d", 8, 0.0)
UUID128 = Fixed("uuid", "16s", 16, ZERO_UUID)

Int8: TypeAlias = Annotated[int, INT8]
Int16: TypeAlias = Annotated[int, INT16]
Uint16: TypeAlias = Annotated[int, UINT16]
Int32: TypeAlias = Annotated[int, INT32]
Uint32: TypeAlias = Annotated[int, UINT32]
Int64: TypeAlias = Annotated[int, INT64]
Float64: TypeAlias = Annotated[float, FLOAT64]
Records: TypeAlias = Annotated[bytes | bytearray | memoryview | FileSlice | Parts, Variable.RECORDS]
"""Record batches. After decoding, a memoryview of the buffer; for encoding, any of these types."""

_PLAIN_TYPES: dict[object, Fixed | Variable] = {
    bool: BOOLEAN,
    UUID: UUID128,
    str: Variable.STRING,
    bytes: Variable.BYTES,
}


@dataclass(frozen=True, slots=True)
class Array:
    """Elements preceded by their number."""

    element: WireType


@dataclass(frozen=True, slots=True)
class Struct:
    """The fields of a declared class, one after the other."""

    cls: type

    @property
    def fields(self) -> tuple[Field, ...]:
        return fields_of(self.cls)


WireType: TypeAlias = Fixed | Variable | Array | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """One field of one struct, in all versions.

    `default` is the value in versions without the field. For an array, an empty tuple stands for a new
    list; for a struct that may not be null, None stands for a new one. `tag` is the number of a tagged
    field. An `ignorable` field is dropped in versions without it; any other field must then have its default.
    """

    name: str
    type: WireType
    versions: Versions
    nullable: Versions
    default: Any
    tag: int | None
    ignorable: bool

    @property
    def may_be_null(self) -> bool:
        """Whether the field may be null in any version."""
        return self.nullable.first <= self.nullable.last


FIELDS_ATTRIBUTE = "__wire_fields__"


def fields_of(cls: type) -> tuple[Field, ...]:
    """The declared fields of a struct, in wire order. Raises SchemaError if `cls` is not a struct."""
    try:
        return typing.cast("tuple[Field, ...]", vars(cls)[FIELDS_ATTRIBUTE])
    except KeyError:
        raise SchemaError(f"{cls.__name__} is not declared as a struct") from None


def wire_type(annotation: object) -> tuple[WireType, bool]:
    """The wire type that an annotation stands for, and whether it may be null. Raises SchemaError."""
    if typing.get_origin(annotation) is Annotated:
        return _marker(annotation), False
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return _optional(annotation), True
    if typing.get_origin(annotation) is list:
        (element,) = typing.get_args(annotation)
        element_type, nullable = wire_type(element)
        if nullable or isinstance(element_type, Array):
            raise SchemaError(f"{annotation}: arrays of arrays or of nullable values are not supported")
        return Array(element_type), False
    if annotation in _PLAIN_TYPES:
        return _PLAIN_TYPES[annotation], False
    if isinstance(annotation, type) and FIELDS_ATTRIBUTE in vars(annotation):
        return Struct(annotation), False
    raise SchemaError(f"{annotation} has no form on the wire")


def _marker(annotation: Any) -> WireType:
    (marker,) = annotation.__metadata__
    if not isinstance(marker, Fixed | Variable):
        raise SchemaError(f"{annotation} has no form on the wire")
    return marker


def _optional(annotation: object) -> WireType:
    """The type of `X | None`. Raises SchemaError for other unions."""
    others = [argument for argument in typing.get_args(annotation) if argument is not types.NoneType]
    if len(others) != 1:
        raise SchemaError(f"{annotation} has no form on the wire")
    return wire_type(others[0])[0]


def implicit_default(type_: WireType, nullable: bool) -> object:
    """Kafka's default for a field declared without one: zero, empty or false."""
    match type_:
        case Fixed():
            return type_.default
        case Variable.STRING:
            return ""
        case Variable.BYTES:
            return b""
        case Variable.RECORDS:
            return None if nullable else b""
        case Array():
            return ()
        case Struct():
            return None


def minimum_size(type_: WireType, version: int, flexible: bool) -> int:
    """The minimum size of a value of the type, in bytes. It limits an array's length before the array is
    read."""
    match type_:
        case Fixed():
            return type_.size
        case Variable():
            return 1 if flexible else (2 if type_ is Variable.STRING else 4)
        case Array():
            return 1 if flexible else 4
        case Struct():
            present = (f for f in type_.fields if version in f.versions and f.tag is None)
            return sum(_minimum_field_size(f, version, flexible) for f in present) + int(flexible)


def _minimum_field_size(field: Field, version: int, flexible: bool) -> int:
    if isinstance(field.type, Struct) and version in field.nullable:
        return 1
    return minimum_size(field.type, version, flexible)
