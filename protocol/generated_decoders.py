"""Decoders, one generated function for each message and version."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID, SafeUUID

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
from holdfast_log.protocol.generated_source import GeneratedSource, length_code, require_flexible

Decoder: TypeAlias = Callable[[memoryview, int, int, int], tuple[Any, int]]
"""(buffer, position, end, maximum number of elements): the message, and the position after it."""

SteppingDecoder: TypeAlias = Callable[[memoryview, int, int, int], Generator[None, None, tuple[Any, int]]]
"""Does the same, a little between two pauses."""

_UUID_CACHE_SIZE = 4096
_STEP_ELEMENTS = 32
"""A stepping decoder pauses after so many elements of lists, whichever lists they are in."""
STEP_BYTES = 64 * 1024
"""It pauses also after an element that ends so many bytes behind the last pause: long strings are copied."""
STEP_NUMBERS = 4096
"""Of a plain list of numbers it decodes so many at a time, in a tenth of a millisecond."""
_PLAIN_ELEMENTS_SHIFT = 3
"""Eight numbers in a list count as one element, since they need less memory than strings and structs."""


def generate_decoder(cls: type, version: int, flexible: bool) -> Decoder:
    """The function that decodes `cls` in `version`. Raises SchemaError."""
    source = _DecoderSource(version, flexible)
    with source.block("def decode(buf, pos, end, room):"):
        source.struct(Struct(cls), "message", cls.__name__)
        source.flush()
        source.line("return message, pos")
    decoder: Decoder = source.compile("decode", f"<decoder of {cls.__name__} v{version}>")
    return decoder


def generate_stepping_decoder(cls: type, version: int, flexible: bool) -> SteppingDecoder:
    """The function that decodes `cls` in `version` with pauses. Raises SchemaError."""
    source = _DecoderSource(version, flexible, has_pauses=True)
    with source.block("def decode(buf, pos, end, room):"):
        source.line("paused, since = pos, 0")
        source.struct(Struct(cls), "message", cls.__name__)
        source.flush()
        source.line("return message, pos")
        source.line("yield")  # It is a generator even if it has no lists.
    decoder: SteppingDecoder = source.compile("decode", f"<stepping decoder of {cls.__name__} v{version}>")
    return decoder


class _DecoderSource(GeneratedSource):
    def __init__(self, version: int, flexible: bool, *, has_pauses: bool = False) -> None:
        super().__init__(version, flexible)
        self._has_pauses = has_pauses
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
        require_flexible(type_, self.flexible)
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
            self._run.append((length_code(type_), length))
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
            self._numbers(element, target, length)
            return
        items, item = self.name("items"), self.name("item")
        self.line(f"{target} = {items} = []")
        with self.block(f"for _ in range({length}):"):
            self.value(element, item, False, path)
            self.flush()
            self.line(f"{items}.append({item})")
            if self._has_pauses:
                self.line("since += 1")
                with self.block(f"if since >= {_STEP_ELEMENTS} or pos - paused >= {STEP_BYTES}:"):
                    self._pause()

    def _numbers(self, element: Fixed, target: str, length: str) -> None:
        unpack = self.constant("unpack", struct.unpack_from)
        if not self._has_pauses:
            self.line(f"{target} = list({unpack}('>%d{element.code}' % {length}, buf, pos))")
            self.line(f"pos += {length} * {element.size}")
            return
        left, some = self.name("left"), self.name("some")
        self.line(f"{target} = []")
        self.line(f"{left} = {length}")
        with self.block(f"while {left}:"):
            self.line(f"{some} = min({left}, {STEP_NUMBERS})")
            self.line(f"{target} += {unpack}('>%d{element.code}' % {some}, buf, pos)")
            self.line(f"pos += {some} * {element.size}")
            self.line(f"{left} -= {some}")
            with self.block(f"if {left}:"):
                self._pause()

    def _pause(self) -> None:
        self.line("paused, since = pos, 0")
        self.line("yield")

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


def _refuse_length(path: str, length: int, left: int) -> None:
    raise wire.MalformedMessage(f"{path}: a length of {length}; only {left} bytes remain")


def _refuse_elements(path: str) -> None:
    raise wire.TooManyElements(f"{path}: the message has too many elements")


@lru_cache(_UUID_CACHE_SIZE)
def uuid_of(raw: bytes) -> UUID:
    """The UUID of 16 bytes. Cached: topic ids repeat, and creating one is the most expensive step of reading
    it. Those of a hostile client do not repeat, so they are made without the constructor, which takes twice
    as long to look at all that it may be given."""
    made = UUID.__new__(UUID)
    object.__setattr__(made, "int", int.from_bytes(raw, "big"))
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made
