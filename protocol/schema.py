"""Messages as declarations: one class per struct, for all its versions.

    @struct
    class MetadataRequestTopic:
        topic_id: UUID = wire("10+", ignorable=True)
        name: str | None = wire(nullable="10+")

A field's annotation gives its type on the wire (see `protocol.fields`). `wire(...)` adds what an annotation
cannot express: the versions that have the field, those in which it may be null, its tag, its default. A
field without a value is in every version, and the constructor requires it. Constructors take keyword
arguments only; names are Kafka's in snake case.

`encode` and `decode` use functions that `protocol.generated_encoders` and `protocol.generated_decoders` make
from the declarations.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar, TypeVar, dataclass_transform

from holdfast_log.protocol.fields import (
    ALL_VERSIONS,
    FIELDS_ATTRIBUTE,
    NO_VERSIONS,
    ZERO_UUID,
    Array,
    Field,
    Fixed,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    SchemaError,
    Struct,
    Uint16,
    Uint32,
    Versions,
    implicit_default,
    wire_type,
)
from holdfast_log.protocol.frames import Part, Parts, join_parts
from holdfast_log.protocol.generated_decoders import (
    Decoder,
    SteppingDecoder,
    generate_decoder,
    generate_stepping_decoder,
)
from holdfast_log.protocol.generated_encoders import Encoder, generate_encoder
from holdfast_log.protocol.wire import (
    DECODE_ERRORS,
    ENCODE_ERRORS,
    Buffer,
    InvalidMessage,
    MalformedMessage,
    TooManyElements,
    UnsupportedField,
    UnsupportedVersion,
)

__all__ = [
    "ProtocolMessage", "struct", "message", "wire", "encode", "encode_parts", "decode", "decode_from",
    "Int8", "Int16", "Uint16", "Int32", "Uint32", "Int64", "Float64", "Records", "ZERO_UUID",
    "Buffer", "InvalidMessage", "MalformedMessage", "SchemaError", "UnsupportedField", "UnsupportedVersion",
    "TooManyElements", "Versions", "received_records",
]  # fmt: skip

T = TypeVar("T")
M = TypeVar("M", bound="ProtocolMessage")


class ProtocolMessage:
    """A complete message, as `encode` takes and `decode` returns."""

    __slots__ = ()

    versions: ClassVar[Versions]
    flexible_versions: ClassVar[Versions]
    """The versions with compact lengths and tagged fields (KIP-482)."""


_IMPLICIT: Any = object()


@dataclasses.dataclass(frozen=True, slots=True)
class _Wire:
    versions: Versions
    default: Any
    nullable: Versions | None
    tag: int | None
    ignorable: bool


def wire(
    versions: str = "0+",
    *,
    default: Any = _IMPLICIT,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """What a field's annotation cannot say.

    `versions` and `nullable` are in Kafka's notation ("3", "0-5", "4+"). A field annotated `X | None` may be
    null in all its versions, or in those of `nullable`; a struct may be null in flexible versions only
    (KIP-893). Without a `default` Kafka's holds: zero, empty or false, and null for a struct that may be
    null. A field with a `tag` is a tagged field, left out where it holds its default. To encode a version
    without the field is an UnsupportedField, unless the field holds its default or is `ignorable`.
    """
    null_versions = None if nullable is None else Versions.parse(nullable)
    return _Wire(Versions.parse(versions), default, null_versions, tag, ignorable)


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Declares the class as a struct and makes it a dataclass with slots. Raises SchemaError."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [_field(cls, name, hints[name]) for name in cls.__annotations__]
    for field in fields:
        if isinstance(vars(cls).get(field.name), _Wire):
            setattr(cls, field.name, _dataclass_field(cls, field))
    setattr(cls, FIELDS_ATTRIBUTE, tuple(fields))
    return dataclasses.dataclass(slots=True, kw_only=True)(cls)


def _field(cls: type, name: str, hint: object) -> Field:
    try:
        type_, nullable = wire_type(hint)
    except SchemaError as error:
        raise SchemaError(f"{cls.__qualname__}.{name}: {error}") from None
    if nullable and isinstance(type_, Fixed):
        raise SchemaError(f"{cls.__qualname__}.{name}: numbers cannot be null")
    declared = vars(cls).get(name, _IMPLICIT)
    if not isinstance(declared, _Wire):
        declared = _Wire(ALL_VERSIONS, declared, None, None, False)
    default = declared.default
    if default is _IMPLICIT:
        default = implicit_default(type_, nullable)
    null_versions = (declared.nullable or ALL_VERSIONS) if nullable else NO_VERSIONS
    return Field(name, type_, declared.versions, null_versions, default, declared.tag, declared.ignorable)


def _dataclass_field(owner: type, field: Field) -> Any:
    match field.type, field.default:
        case Array(), ():
            return dataclasses.field(default_factory=list)
        case Struct(cls=cls), _ if not field.may_be_null:
            try:
                cls()
            except TypeError as error:
                raise SchemaError(f"{owner.__qualname__}.{field.name} can have no default: {error}") from None
            return dataclasses.field(default_factory=cls)
        case _:
            return dataclasses.field(default=field.default)


def set_versions(cls: type[ProtocolMessage], versions: str, flexible: str) -> None:
    """Set the versions of a message, and which of them are flexible."""
    cls.versions = Versions.parse(versions)
    cls.flexible_versions = Versions.parse(flexible)


@dataclass_transform(kw_only_default=True)
def message(*, versions: str, flexible: str = "none") -> Callable[[type[M]], type[M]]:
    """Declares a message outside of any API, such as the key of a record in an internal topic."""

    def declare(cls: type[M]) -> type[M]:
        declared = struct(cls)
        set_versions(declared, versions, flexible)
        return declared

    return declare


_encoders: dict[tuple[type[ProtocolMessage], int], Encoder] = {}
_decoders: dict[tuple[type[ProtocolMessage], int], Decoder] = {}
_stepping_decoders: dict[tuple[type[ProtocolMessage], int], SteppingDecoder] = {}


def encode(message: ProtocolMessage, version: int) -> bytes:
    """The encoded message as one bytes object. `encode_parts` does not copy large records.

    Raises InvalidMessage (UnsupportedField among them) and UnsupportedVersion.
    """
    return join_parts(encode_parts(message, version))


def encode_parts(message: ProtocolMessage, version: int, prefix: bytes = b"") -> Parts:
    """`prefix` and the encoded message. Large records and pieces of files are parts of their own.

    The first part is always bytes.

    Raises InvalidMessage (UnsupportedField among them) and UnsupportedVersion.
    """
    cls = type(message)
    encoder = _encoders.get((cls, version)) or _make_encoder(cls, version)
    out: list[Part] = [prefix]
    cuts: list[int] = []
    try:
        encoder(message, out, cuts)
        return _split(out, cuts) if cuts else [b"".join(out)]  # type: ignore[arg-type]
    except ENCODE_ERRORS as error:
        raise InvalidMessage(f"{cls.__name__} v{version}: {error}") from error


def _split(out: list[Part], cuts: Sequence[int]) -> Parts:
    """`out`, in which all pieces except those at `cuts` are joined with their neighbours. Those are bytes."""
    parts: Parts = []
    start = 0
    for cut in cuts:
        if cut > start:
            parts.append(b"".join(out[start:cut]))  # type: ignore[arg-type]
        parts.append(out[cut])
        start = cut + 1
    if start < len(out):
        parts.append(b"".join(out[start:]))  # type: ignore[arg-type]
    return parts


def decode(cls: type[M], version: int, buffer: Buffer) -> M:
    """The message at the start of `buffer`; later bytes are ignored. Records are views of the buffer.

    For any bytes, it raises nothing but MalformedMessage and UnsupportedVersion.
    """
    return decode_from(cls, version, buffer)[0]


def decode_from(
    cls: type[M], version: int, buffer: Buffer, position: int = 0, elements_max: int = sys.maxsize
) -> tuple[M, int]:
    """The message at `position` of `buffer`, and the position after it. Raises as `decode` does.

    `elements_max` limits memory and time: it counts the elements of all arrays together (eight numbers of a
    plain list count as one) and tagged fields. Above it TooManyElements is raised, a MalformedMessage.
    """
    decoder = _decoders.get((cls, version)) or _make_decoder(cls, version)
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    try:
        return decoder(view, position, len(view), elements_max)
    except DECODE_ERRORS as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from error


def decode_in_steps(
    cls: type[M], version: int, buffer: memoryview, position: int, elements_max: int
) -> Generator[None, None, M]:
    """Decode as `decode_from` does, and raise the same, with a pause after each millisecond of work or less.
    For messages with very many elements: the caller decides when it goes on."""
    decoder = _stepping_decoders.get((cls, version)) or _make_stepping_decoder(cls, version)
    try:
        message, _ = yield from decoder(buffer, position, len(buffer), elements_max)
    except DECODE_ERRORS as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from error
    return message  # type: ignore[no-any-return]


def _make_encoder(cls: type[ProtocolMessage], version: int) -> Encoder:
    encoder = generate_encoder(cls, version, _is_flexible(cls, version))
    _encoders[cls, version] = encoder
    return encoder


def _make_decoder(cls: type[ProtocolMessage], version: int) -> Decoder:
    decoder = generate_decoder(cls, version, _is_flexible(cls, version))
    _decoders[cls, version] = decoder
    return decoder


def _make_stepping_decoder(cls: type[ProtocolMessage], version: int) -> SteppingDecoder:
    decoder = generate_stepping_decoder(cls, version, _is_flexible(cls, version))
    _stepping_decoders[cls, version] = decoder
    return decoder


def _is_flexible(cls: type[ProtocolMessage], version: int) -> bool:
    if version not in cls.versions:
        first, last = cls.versions.first, cls.versions.last
        raise UnsupportedVersion(f"{cls.__name__} has versions {first} to {last}, not {version}")
    return version in cls.flexible_versions


def received_records(records: Part | Parts | None) -> memoryview:
    """The records of a decoded message as a memoryview, empty for null."""
    if records is None:
        return memoryview(b"")
    assert isinstance(records, memoryview), "the message was not decoded"
    return records
