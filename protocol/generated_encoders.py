"""Encoders, one generated function for each message and version."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from holdfast_log.protocol import wire
from holdfast_log.protocol.fields import (
    UUID128,
    Array,
    Field,
    Fixed,
    SchemaError,
    Struct,
    Variable,
    WireType,
)
from holdfast_log.protocol.frames import FileSlice, Part, Parts, parts_size
from holdfast_log.protocol.generated_source import (
    NULL_STRUCT,
    PRESENT_STRUCT,
    GeneratedSource,
    length_code,
    require_flexible,
)

Encoder: TypeAlias = Callable[[Any, list[Part], list[int]], None]
"""(message, out, cuts): appends the pieces of the message to `out`, and to `cuts` the indexes in `out` of the
records, and of the pieces of encoded rows, that are too large to copy."""

INLINE_RECORDS_BYTES = 2048
"""Records, and pieces of encoded rows, of up to this many bytes are copied, which is cheaper than a part of
their own."""

_INT32 = struct.Struct(">i")


class EncodedArray:
    """The elements of one array of structs as bytes, in place of the list."""

    __slots__ = ("count", "pieces")

    def __init__(self) -> None:
        self.pieces: list[Part] = []
        self.count = 0

    def __len__(self) -> int:
        return self.count


def generate_encoder(cls: type, version: int, flexible: bool) -> Encoder:
    """The function that encodes `cls` in `version`. Raises SchemaError."""
    source = _EncoderSource(version, flexible)
    with source.block("def encode(message, out, cuts):"):
        source.line("put = out.append")
        source.struct(Struct(cls), "message")
        source.flush()
    encoder: Encoder = source.compile("encode", f"<encoder of {cls.__name__} v{version}>")
    return encoder


class _EncoderSource(GeneratedSource):
    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self._put = "put"
        self._run: list[tuple[str, str]] = []
        self._in_tag = False

    def flush(self) -> None:
        """Write the pending run as one call of `struct.Struct.pack`."""
        if not self._run:
            return
        layout = struct.Struct(">" + "".join(code for code, _ in self._run))
        values = ", ".join(value for _, value in self._run if value)
        pieces = layout.pack() if not values else None
        self.line(f"{self._put}({pieces!r})" if pieces else f"{self._put}({self._packer(layout)}({values}))")
        self._run.clear()

    def _packer(self, layout: struct.Struct) -> str:
        return self.constant("pack", layout.pack)

    def struct(self, type_: Struct, value: str) -> None:
        for field in type_.fields:
            if self.version not in field.versions:
                self._require_default(field, value)
            elif field.tag is None:
                self.value(field.type, f"{value}.{field.name}", self.version in field.nullable)
        if self.flexible:
            self._tagged_fields(type_, value)

    def _require_default(self, field: Field, value: str) -> None:
        if field.ignorable:
            return
        with self.block(f"if {self._differs(field, f'{value}.{field.name}')}:"):
            refuse = self.constant("refuse", _refuse_field)
            self.line(f"{refuse}({value}, {field.name!r}, {self.version})")

    def _differs(self, field: Field, value: str) -> str:
        """The condition that a field differs from its default."""
        match field.type, field.default:
            case _, None if field.may_be_null or not isinstance(field.type, Struct):
                return f"{value} is not None"
            case Array(), _:
                return value
            case Struct() as nested, _:
                return " or ".join(self._differs(inner, f"{value}.{inner.name}") for inner in nested.fields)
            case _:
                return f"{value} != {self.literal(field.default)}"

    def value(self, type_: WireType, value: str, nullable: bool = False) -> None:
        match type_:
            case Fixed():
                self._run.append((type_.code, f"{value}.bytes" if type_ is UUID128 else value))
            case Struct() if nullable:
                self._nullable_struct(type_, value)
            case Struct():
                self.struct(type_, value)
            case _ if nullable:
                self._nullable(type_, value)
            case Variable.RECORDS:
                self._records(value)
            case Variable():
                self._variable(type_, value)
            case Array():
                self._array(type_.element, value)

    def _nullable_struct(self, type_: Struct, value: str) -> None:
        """A byte before the struct says whether it is there (KIP-893)."""
        require_flexible(type_, self.flexible)
        held = self.name("value")
        self.flush()
        self.line(f"{held} = {value}")
        with self.block(f"if {held} is None:"):
            self.line(f"{self._put}({struct.pack('>b', NULL_STRUCT)!r})")
        with self.block("else:"):
            self._run.append(("b", str(PRESENT_STRUCT)))
            self.struct(type_, held)
            self.flush()

    def _nullable(self, type_: WireType, value: str) -> None:
        held = self.name("value")
        self.flush()
        self.line(f"{held} = {value}")
        with self.block(f"if {held} is None:"):
            null = b"\x00" if self.flexible else struct.pack(f">{length_code(type_)}", -1)
            self.line(f"{self._put}({null!r})")
        with self.block("else:"):
            self.value(type_, held)
            self.flush()

    def _variable(self, type_: Variable, value: str) -> None:
        data = value
        if type_ is Variable.STRING:
            data = self.name("text")
            self.line(f"{data} = {value}.encode()")
        self._length(type_, f"len({data})")
        self.flush()
        self.line(f"{self._put}({data})")

    def _records(self, value: str) -> None:
        if self._in_tag:
            raise SchemaError("records in a tagged field")
        self.flush()
        length = self.constant("length", wire.compact_length if self.flexible else _INT32.pack)
        self.line(f"{self.constant('put_records', _put_records)}(out, cuts, {value}, {length})")

    def _array(self, element: WireType, value: str) -> None:
        items = self.name("items")
        self.line(f"{items} = {value}")
        self._length(Array(element), f"len({items})")
        self.flush()
        if isinstance(element, Fixed) and element is not UUID128:
            pack = self.constant("pack", struct.pack)
            with self.block(f"if {items}:"):
                self.line(f"{self._put}({pack}('>%d{element.code}' % len({items}), *{items}))")
            return
        item = self.name("item")
        if isinstance(element, Struct):
            encoded = self.constant("encoded", EncodedArray)
            self.line(f"is_encoded = isinstance({items}, {encoded})")
            with self.block("if is_encoded:"):
                if self._in_tag:
                    with self.block(f"for {item} in {items}.pieces:"):
                        self.line(f"{self._put}({item})")
                else:
                    self.line(f"{self.constant('put_encoded', _put_encoded)}(out, cuts, {items})")
            self.line(f"for {item} in () if is_encoded else {items}:")
        else:
            self.line(f"for {item} in {items}:")
        self._depth += 1
        self.value(element, item)
        self.flush()
        self._depth -= 1

    def _length(self, type_: WireType, length: str) -> None:
        if not self.flexible:
            self._run.append((length_code(type_), length))
            return
        self.flush()
        held = self.name("length")
        large = wire.compact_string_length if type_ is Variable.STRING else wire.compact_length
        small = self.constant("small", wire.SMALL_UVARINTS)
        self.line(f"{held} = {length}")
        self.line(
            f"{self._put}({small}[{held} + 1] if {held} < 127 else {self.constant('large', large)}({held}))"
        )

    def _tagged_fields(self, type_: Struct, value: str) -> None:
        fields = [field for field in type_.fields if field.tag is not None and self.version in field.versions]
        if not fields:
            self._run.append(("x", ""))  # the number of tagged fields, zero: a pad byte
            return
        self.flush()
        tagged = self.name("tagged")
        self.line(f"{tagged} = []")
        for field in sorted(fields, key=lambda field: field.tag or 0):
            with self.block(f"if {self._differs(field, f'{value}.{field.name}')}:"):
                self._tagged_field(field, f"{value}.{field.name}", tagged)
        with self.block(f"if {tagged}:"):
            self.line(f"{self._put}({self.constant('uvarint', wire.uvarint)}(len({tagged})))")
            self.line(f"{self._put}(b''.join({tagged}))")
        with self.block("else:"):
            self.line(f"{self._put}(b'\\x00')")

    def _tagged_field(self, field: Field, value: str, tagged: str) -> None:
        outer_put, outer_in_tag = self._put, self._in_tag
        pieces, data = self.name("pieces"), self.name("data")
        self._put, self._in_tag = f"{pieces}.append", True
        self.line(f"{pieces} = []")
        self.value(field.type, value, self.version in field.nullable)
        self.flush()
        self._put, self._in_tag = outer_put, outer_in_tag
        uvarint = self.constant("uvarint", wire.uvarint)
        self.line(f"{data} = b''.join({pieces})")
        self.line(f"{tagged}.append({uvarint}({field.tag}) + {uvarint}(len({data})) + {data})")


def _refuse_field(message: object, field: str, version: int) -> None:
    raise wire.UnsupportedField(
        f"{type(message).__name__}.{field} is set, but version {version} has no such field"
    )


def _put_encoded(out: list[Part], cuts: list[int], encoded: EncodedArray) -> None:
    for piece in encoded.pieces:
        if isinstance(piece, FileSlice) or len(piece) > INLINE_RECORDS_BYTES:
            cuts.append(len(out))
        out.append(piece)


def _put_records(
    out: list[Part], cuts: list[int], records: Part | Parts, length: Callable[[int], bytes]
) -> None:
    if type(records) is FileSlice and records.data is not None:
        records = records.data
    if type(records) is FileSlice:
        out.append(length(records.length))
        cuts.append(len(out))
        out.append(records)
        return
    parts = records if isinstance(records, list) else [records]
    out.append(length(parts_size(parts)))
    for part in parts:
        if isinstance(part, FileSlice) or len(part) > INLINE_RECORDS_BYTES:
            cuts.append(len(out))
        out.append(part)
