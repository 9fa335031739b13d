"""Encoders and decoders as Python source, one function for each message and version.

A function is generated when a version is first used. It has the whole message inlined, nested structs and
loops included. Adjacent fields of fixed width, and the length that follows them, are packed or unpacked by
one `struct.Struct`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

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
    minimum_size,
)
from holdfast_log.protocol.frames import FileSlice, Part, Parts, parts_size

Encoder: TypeAlias = Callable[[Any, list[Part], list[int]], None]
"""(message, out, cuts): appends the pieces of the message to `out`, and to `cuts` the indexes in `out` of the
records that are too large to copy."""
Decoder: TypeAlias = Callable[[memoryview, int, int, int], tuple[Any, int]]
"""(buffer, position, end, maximum number of elements): the message, and the position after it."""

INLINE_RECORDS_BYTES = 2048
"""Records up to this many bytes are copied, which is cheaper than a part of their own."""
_UUID_CACHE_SIZE = 4096
_PLAIN_ELEMENTS_SHIFT = 3
"""Eight numbers in a list count as one element, since they need less memory than strings and structs."""


class EncodedArray:
    """The elements of one array of structs as bytes, in place of the list."""

    __slots__ = ("count", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
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


def generate_decoder(cls: type, version: int, flexible: bool) -> Decoder:
    """The function that decodes `cls` in `version`. Raises SchemaError."""
    source = _DecoderSource(version, flexible)
    with source.block("def decode(buf, pos, end, room):"):
        source.struct(Struct(cls), "message", cls.__name__)
        source.flush()
        source.line("return message, pos")
    decoder: Decoder = source.compile("decode", f"<decoder of {cls.__name__} v{version}>")
    return decoder


class _Source:
    """Lines of a generated function, and the constants that they use."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self._globals: dict[str, Any] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: object) -> str:
        """The name of `value` in the generated function."""
        for name, known in self._globals.items():
            if known is value:
                return name
        name = self.name(prefix)
        self._globals[name] = value
        return name

    def literal(self, value: object) -> str:
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        return self.constant("default", value)

    def compile(self, function: str, filename: str) -> Any:
        exec(compile("\n".join(self._lines), filename, "exec"), self._globals)
        return self._globals[function]


class _EncoderSource(_Source):
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
        _require_flexible(type_, self.flexible)
        held = self.name("value")
        self.flush()
        self.line(f"{held} = {value}")
        with self.block(f"if {held} is None:"):
            self.line(f"{self._put}({struct.pack('>b', _NULL_STRUCT)!r})")
        with self.block("else:"):
            self._run.append(("b", str(_PRESENT_STRUCT)))
            self.struct(type_, held)
            self.flush()

    def _nullable(self, type_: WireType, value: str) -> None:
        held = self.name("value")
        self.flush()
        self.line(f"{held} = {value}")
        with self.block(f"if {held} is None:"):
            null = b"\x00" if self.flexible else struct.pack(f">{_length_code(type_)}", -1)
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
            with self.block("if is_encoded:"), self.block(f"for {item} in {items}.pieces:"):
                self.line(f"{self._put}({item})")
            self.line(f"for {item} in () if is_encoded else {items}:")
        else:
            self.line(f"for {item} in {items}:")
        self._depth += 1
        self.value(element, item)
        self.flush()
        self._depth -= 1

    def _length(self, type_: WireType, length: str) -> None:
        if not self.flexible:
            self._run.append((_length_code(type_), length))
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


class _DecoderSource(_Source):
    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self._run: list[tuple[str, str]] = []
        self._after: list[str] = []

    def flush(self) -> None:
        """Write the pending run as one call of `struct.Struct.unpack_from`."""
        if len(self._run) == 1 and self._run[0][0] == "B":
            self.line(f"{self._run[0][1]} = buf[pos]")
            self.line("pos += 1")
        elif self._run:
            layout = struct.Struct(">" + "".join(code for code, _ in self._run))
            targets = ", ".join(target for _, target in self._run)
            comma = "," if len(self._run) == 1 else ""
            self.line(f"{targets}{comma} = {self.constant('unpack', layout.unpack_from)}(buf, pos)")
            self.line(f"pos += {layout.size}")
        for line in self._after:
            self.line(line)
        self._run.clear()
        self._after.clear()

    def struct(self, type_: Struct, target: str, path: str) -> None:
        new = self.constant("new", object.__new__)
        self.line(f"{target} = {new}({self.constant(type_.cls.__name__, type_.cls)})")
        for field in type_.fields:
            attribute = f"{target}.{field.name}"
            if self.version not in field.versions or field.tag is not None:
                self._set_default(field, attribute)
            else:
                nullable = self.version in field.nullable
                self.value(field.type, attribute, nullable, f"{path}.{field.name}")
        if self.flexible:
            self._tagged_fields(type_, target, path)

    def _set_default(self, field: Field, target: str) -> None:
        match field.type, field.default:
            case Array(), ():
                self.line(f"{target} = []")
            case Struct() as nested, _ if not field.may_be_null:
                new = self.constant("new", object.__new__)
                self.line(f"{target} = {new}({self.constant(nested.cls.__name__, nested.cls)})")
                for inner in nested.fields:
                    self._set_default(inner, f"{target}.{inner.name}")
            case _:
                self.line(f"{target} = {self.literal(field.default)}")

    def value(self, type_: WireType, target: str, nullable: bool, path: str) -> None:
        match type_:
            case Fixed():
                self._fixed(type_, target)
            case Struct() if nullable:
                self._nullable_struct(type_, target, path)
            case Struct():
                self.struct(type_, target, path)
            case Variable():
                self._variable(type_, target, nullable, path)
            case Array():
                self._array(type_.element, target, nullable, path)

    def _nullable_struct(self, type_: Struct, target: str, path: str) -> None:
        _require_flexible(type_, self.flexible)
        presence = self.name("presence")
        self._run.append(("b", presence))
        self.flush()
        with self.block(f"if {presence} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.struct(type_, target, path)
            self.flush()

    def _fixed(self, type_: Fixed, target: str) -> None:
        if type_ is not UUID128:
            self._run.append((type_.code, target))
            return
        raw = self.name("raw")
        self._run.append((type_.code, raw))
        self._after.append(f"{target} = {self.constant('uuid', uuid_of)}({raw})")

    def _length(self, type_: WireType, path: str) -> str:
        """Write code that reads a length, negative for null. Returns the name of its variable."""
        length = self.name("n")
        if not self.flexible:
            self._run.append((_length_code(type_), length))
            self.flush()
            return length
        self._run.append(("B", length))
        self.flush()
        with self.block(f"if {length} > 127:"):
            self.line(f"{length}, pos = {self.constant('rest', wire.uvarint_rest)}(buf, pos, {length})")
            if type_ is Variable.STRING:
                with self.block(f"if {length} > {wire.MAX_STRING_BYTES + 1}:"):
                    self._refuse(path, f"{length} - 1")
        self.line(f"{length} -= 1")
        return length

    def _refuse(self, path: str, length: str) -> None:
        self.line(f"{self.constant('refuse', _refuse_length)}({path!r}, {length}, end - pos)")

    def _variable(self, type_: Variable, target: str, nullable: bool, path: str) -> None:
        length = self._length(type_, path)
        if not nullable:
            self._variable_present(type_, target, length, path)
            return
        with self.block(f"if {length} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self._variable_present(type_, target, length, path)

    def _variable_present(self, type_: Variable, target: str, length: str, path: str) -> None:
        stop = self.name("stop")
        self.line(f"{stop} = pos + {length}")
        with self.block(f"if not pos <= {stop} <= end:"):
            self._refuse(path, length)
        piece = f"buf[pos:{stop}]"
        match type_:
            case Variable.STRING:
                piece = f"str({piece}, 'utf-8')"
            case Variable.BYTES:
                piece = f"bytes({piece})"
            case Variable.RECORDS:
                pass
        self.line(f"{target} = {piece}")
        self.line(f"pos = {stop}")

    def _array(self, element: WireType, target: str, nullable: bool, path: str) -> None:
        length = self._length(Array(element), path)
        if not nullable:
            self._array_present(element, target, length, path)
            return
        with self.block(f"if {length} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self._array_present(element, target, length, path)

    def _array_present(self, element: WireType, target: str, length: str, path: str) -> None:
        size = minimum_size(element, self.version, self.flexible)
        if size == 0:
            raise SchemaError(f"{path}: elements without bytes, whose number could not be limited")
        with self.block(f"if not 0 <= {length} * {size} <= end - pos:"):
            self._refuse(path, length)
        is_plain = isinstance(element, Fixed) and element is not UUID128
        self._take_room(f"{length} >> {_PLAIN_ELEMENTS_SHIFT}" if is_plain else length, path)
        if isinstance(element, Fixed) and is_plain:
            unpack = self.constant("unpack", struct.unpack_from)
            self.line(f"{target} = list({unpack}('>%d{element.code}' % {length}, buf, pos))")
            self.line(f"pos += {length} * {element.size}")
            return
        items, item = self.name("items"), self.name("item")
        self.line(f"{target} = {items} = []")
        with self.block(f"for _ in range({length}):"):
            self.value(element, item, False, path)
            self.flush()
            self.line(f"{items}.append({item})")

    def _take_room(self, count: str, path: str) -> None:
        self.line(f"room -= {count}")
        with self.block("if room < 0:"):
            self.line(f"{self.constant('refuse', _refuse_elements)}({path!r})")

    def _tagged_fields(self, type_: Struct, target: str, path: str) -> None:
        count = self.name("tags")
        self._run.append(("B", count))
        self.flush()
        fields = [field for field in type_.fields if field.tag is not None and self.version in field.versions]
        with self.block(f"if {count}:"):
            self._take_room(count, path)
            if fields:
                self._known_tagged_fields(fields, target, count, path)
            else:
                skip = self.constant("skip", wire.skip_tagged_fields)
                self.line(f"pos = {skip}(buf, pos, end, {count})")

    def _known_tagged_fields(self, fields: list[Field], target: str, count: str, path: str) -> None:
        tag, stop = self.name("tag"), self.name("stop")
        with self.block(f"if {count} > 127:"):
            self.line(f"{count}, pos = {self.constant('rest', wire.uvarint_rest)}(buf, pos, {count})")
            with self.block(f"if {count} > {wire.MAX_TAGGED_FIELDS}:"):
                self._refuse(path, count)
        with self.block(f"for _ in range({count}):"):
            self.line(f"{tag}, pos, {stop} = {self.constant('read_tag', wire.read_tag)}(buf, pos, end)")
            for number, field in enumerate(fields):
                with self.block(f"{'elif' if number else 'if'} {tag} == {field.tag}:"):
                    nullable = self.version in field.nullable
                    self.value(field.type, f"{target}.{field.name}", nullable, f"{path}.{field.name}")
                    self.flush()
                    with self.block(f"if pos != {stop}:"):
                        self._refuse(f"{path}.{field.name}", f"{stop} - pos")
            with self.block("else:"):
                self.line(f"pos = {stop}")


_INT32 = struct.Struct(">i")
_NULL_STRUCT, _PRESENT_STRUCT = -1, 1


def _require_flexible(type_: Struct, flexible: bool) -> None:
    if not flexible:
        raise SchemaError(f"{type_.cls.__qualname__} may be null in a version that is not flexible")


def _length_code(type_: WireType) -> str:
    return "h" if type_ is Variable.STRING else "i"


def _refuse_field(message: object, field: str, version: int) -> None:
    raise wire.UnsupportedField(
        f"{type(message).__name__}.{field} is set, but version {version} has no such field"
    )


def _refuse_length(path: str, length: int, left: int) -> None:
    raise wire.MalformedMessage(f"{path}: a length of {length}; only {left} bytes remain")


def _refuse_elements(path: str) -> None:
    raise wire.TooManyElements(f"{path}: the message has too many elements")


@lru_cache(_UUID_CACHE_SIZE)
def uuid_of(raw: bytes) -> UUID:
    """Cached: topic ids repeat, and creating a UUID is the most expensive step of reading one."""
    return UUID(bytes=raw)


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
