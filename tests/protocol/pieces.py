"""Messages as pieces of bytes that say what they are, so that damage can be aimed at what they mean.

`pieces_of` encodes a message as `protocol.schema.encode` does, piece by piece. A `Damage` takes a list of
pieces and changes counts, lengths, numbers and batches, or repeats, drops and swaps whole spans.
"""

from __future__ import annotations

import enum
import itertools
import random
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_log.protocol.batches import HEADER_SIZE
from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.fields import Array, Field, Fixed, Struct, Variable, WireType, fields_of
from holdfast_log.protocol.schema import ProtocolMessage


class Kind(enum.IntEnum):
    """What a piece is."""

    COUNT = enum.auto()
    """Number of elements, or of tagged fields."""
    LENGTH = enum.auto()
    """Length of what follows."""
    PRESENCE = enum.auto()
    """Whether a struct follows."""
    NUMBER = enum.auto()
    """Number of fixed width."""
    CONTENT = enum.auto()
    """Text or bytes."""
    RECORDS = enum.auto()
    """Record batches."""
    BEGIN = enum.auto()
    """Beginning of an element or tagged field."""
    END = enum.auto()
    """End of an element or tagged field."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a message. `is_compact`: a count, length or tag that is a varint, not of fixed width."""

    kind: Kind
    data: bytes = b""
    is_compact: bool = False


def uvarint(value: int, width: int = 0) -> bytes:
    """An unsigned varint; with more bytes than it needs, up to `width`."""
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < width:
        out.append(0x80 | (value & 0x7F))
        value >>= 7
    out.append(value)
    return bytes(out)


def pieces_of(message: ProtocolMessage, version: int) -> list[Piece]:
    """The encoded message, in pieces."""
    cls = type(message)
    writer = _Writer(version, is_flexible=version in cls.flexible_versions)
    writer.struct(cls, message)
    return writer.pieces


def joined(pieces: Iterable[Piece]) -> bytes:
    """The bytes of pieces."""
    return b"".join(piece.data for piece in pieces)


class _Writer:
    def __init__(self, version: int, *, is_flexible: bool) -> None:
        self.pieces: list[Piece] = []
        self._version = version
        self._is_flexible = is_flexible

    def _put(self, kind: Kind, data: bytes = b"", *, is_compact: bool = False) -> None:
        self.pieces.append(Piece(kind, data, is_compact))

    def struct(self, cls: type, value: Any) -> None:
        fields = [field for field in fields_of(cls) if self._version in field.versions]
        for field in fields:
            if field.tag is None:
                self._value(field.type, getattr(value, field.name), self._version in field.nullable)
        if self._is_flexible:
            self._tagged([field for field in fields if field.tag is not None], value)

    def _tagged(self, fields: list[Field], value: Any) -> None:
        there = [field for field in fields if _differs(field, getattr(value, field.name))]
        self._put(Kind.COUNT, uvarint(len(there)), is_compact=True)
        for field in sorted(there, key=lambda field: field.tag or 0):
            inner = _Writer(self._version, is_flexible=True)
            inner._value(field.type, getattr(value, field.name), self._version in field.nullable)
            self._put(Kind.BEGIN)
            self._put(Kind.NUMBER, uvarint(field.tag or 0), is_compact=True)
            self._put(Kind.LENGTH, uvarint(len(joined(inner.pieces))), is_compact=True)
            self.pieces += inner.pieces
            self._put(Kind.END)

    def _value(self, type_: WireType, value: Any, nullable: bool) -> None:
        match type_:
            case Fixed():
                data = value.bytes if type_.name == "uuid" else struct.pack(f">{type_.code}", value)
                self._put(Kind.NUMBER, data)
            case Struct(cls):
                if nullable:
                    self._put(Kind.PRESENCE, b"\xff" if value is None else b"\x01")
                if value is not None:
                    self.struct(cls, value)
            case Array(element):
                self._size(Kind.COUNT, None if value is None else len(value), ">i")
                for each in value or ():
                    self._put(Kind.BEGIN)
                    self._value(element, each, nullable=False)
                    self._put(Kind.END)
            case Variable():
                content = value.encode() if isinstance(value, str) else value
                code = ">h" if type_ is Variable.STRING else ">i"
                self._size(Kind.LENGTH, None if content is None else len(content), code)
                if content is not None:
                    is_records = type_ is Variable.RECORDS
                    self._put(Kind.RECORDS if is_records else Kind.CONTENT, bytes(content))

    def _size(self, kind: Kind, size: int | None, code: str) -> None:
        if self._is_flexible:
            self._put(kind, uvarint(0 if size is None else size + 1), is_compact=True)
        else:
            self._put(kind, struct.pack(code, -1 if size is None else size))


def _differs(field: Field, value: Any) -> bool:
    match field.type, field.default:
        case Array(), ():
            return bool(value)
        case Struct(cls), _ if not field.may_be_null:
            return any(_differs(inner, getattr(value, inner.name)) for inner in fields_of(cls))
        case _:
            return bool(value != field.default)


# -- damage ------------------------------------------------------------------------------------------------

_NUMBERS = (
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    256,
    2**15 - 1,
    2**15,
    2**31 - 1,
    2**31,
    2**63 - 1,
    -(2**31),
    -(2**63),
)
_HUGE = (0, 1, 2, 127, 128, 16_384, 2**21, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**35 - 1, 2**63, 2**70)
_BATCH_WIDTHS = (8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4)
_DEPTHS = {Kind.BEGIN: 1, Kind.END: -1}
BATCH_FIELDS = tuple((sum(_BATCH_WIDTHS[:at]), width) for at, width in enumerate(_BATCH_WIDTHS))
"""Position and width of each field in the header of a record batch."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Pieces from `begin` to before `end` are replaced by others, so many times."""

    begin: int
    end: int
    pieces: Sequence[Piece]
    times: int = 1


class Laid:
    """Pieces and their bytes, with what to look for in them. The pieces do not change."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self.data = joined(pieces)
        self._offsets = [0, *itertools.accumulate(len(piece.data) for piece in pieces)]
        self._of: dict[Kind, list[int]] = {kind: [] for kind in Kind}
        for at, piece in enumerate(pieces):
            self._of[piece.kind].append(at)
        self._spans: dict[int, tuple[int, int] | None] = {}

    def of(self, kinds: tuple[Kind, ...]) -> list[int]:
        """Where the pieces of some kinds are, kind after kind."""
        return [at for kind in kinds for at in self._of[kind]]

    def span(self, begin: int) -> tuple[int, int] | None:
        """Where an element or tagged field begins, and what is behind its end; None if it does not end."""
        if begin not in self._spans:
            depth = 0
            self._spans[begin] = None
            for at in range(begin, len(self.pieces)):
                depth += _DEPTHS.get(self.pieces[at].kind, 0)
                if depth == 0:
                    self._spans[begin] = begin, at + 1
                    break
        return self._spans[begin]

    def edited(self, edits: Sequence[Edit]) -> list[Piece]:
        """The pieces after some edits, none of which begins within another."""
        pieces: list[Piece] = []
        at = 0
        for edit in sorted(edits, key=_begin):
            pieces += self.pieces[at : edit.begin]
            pieces += [*edit.pieces] * edit.times
            at = edit.end
        return [*pieces, *self.pieces[at:]]

    def edited_bytes(self, edits: Sequence[Edit]) -> bytes:
        """The bytes of the pieces after some edits."""
        parts, at = [], 0
        for edit in sorted(edits, key=_begin):
            parts.append(self.data[at : self._offsets[edit.begin]])
            parts.append(joined(edit.pieces) * edit.times)
            at = self._offsets[edit.end]
        parts.append(self.data[at:])
        return b"".join(parts)


def _begin(edit: Edit) -> int:
    return edit.begin


class Damage:
    """Damages lists of pieces, by a random generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ways: list[Callable[[Laid], list[Edit]]] = [
            self._change_size, self._change_size, self._change_number, self._change_number,
            self._change_records, self._repeat, self._drop, self._swap, self._nest, self._flip,
        ]  # fmt: skip

    def apply(self, pieces: Sequence[Piece]) -> bytes:
        """The bytes of the pieces, with one to four things wrong, or with several."""
        return self.once(self.partly(pieces))

    def partly(self, pieces: Sequence[Piece]) -> Laid:
        """The pieces with up to three things wrong, for `once` to add another."""
        laid = Laid(pieces)
        for _ in range(self._rng.choice((0, 0, 0, 1, 1, 3))):
            laid = Laid(laid.edited(self._rng.choice(self._ways)(laid)))
        return laid

    def once(self, laid: Laid) -> bytes:
        """The bytes of the pieces with one thing wrong more, or with two. It takes less time than `apply`."""
        rng = self._rng
        data = laid.edited_bytes(rng.choice(self._ways)(laid))
        cut = rng.randrange(12)
        if cut == 0:
            data = data[: rng.randrange(len(data) + 1)]
        elif cut == 1:
            data += rng.randbytes(rng.choice((1, 4, 40)))
        return data

    def _of(self, laid: Laid, *kinds: Kind) -> int | None:
        found = laid.of(kinds)
        return self._rng.choice(found) if found else None

    def _change_size(self, laid: Laid) -> list[Edit]:
        """Make a count or length huge, negative, one too many, or a varint that is too long."""
        at = self._of(laid, Kind.COUNT, Kind.LENGTH, Kind.PRESENCE)
        if at is None:
            return []
        piece, rng = laid.pieces[at], self._rng
        if not piece.is_compact:
            value = int.from_bytes(piece.data, signed=True)
            wrong = rng.choice((*_NUMBERS, value + 1, value - 1, value * 2))
            return [_changed(laid, at, _fixed(wrong, len(piece.data)))]
        value = int.from_bytes(piece.data[:1]) & 0x7F
        match rng.randrange(5):
            case 0:
                data = uvarint(rng.choice(_HUGE))
            case 1:
                data = uvarint(value + 1)
            case 2:
                data = uvarint(max(0, value - 1))
            case 3:
                data = uvarint(value, rng.choice((2, 5, 6, 10, 11)))
            case _:
                data = b"\xff" * rng.choice((1, 5, 12))
        return [_changed(laid, at, data)]

    def _change_number(self, laid: Laid) -> list[Edit]:
        at = self._of(laid, Kind.NUMBER)
        if at is None:
            return []
        piece = laid.pieces[at]
        if piece.is_compact:
            return [_changed(laid, at, uvarint(self._rng.choice(_HUGE)))]
        value = int.from_bytes(piece.data, signed=True)
        wrong = self._rng.choice((*_NUMBERS, value + 1, value - 1))
        return [_changed(laid, at, _fixed(wrong, len(piece.data)))]

    def _change_records(self, laid: Laid) -> list[Edit]:
        at = self._of(laid, Kind.RECORDS)
        return [] if at is None else [_changed(laid, at, self.batch(laid.pieces[at].data))]

    def batch(self, records: bytes) -> bytes:
        """Record batches with one thing wrong in their header or records; half of them with a checksum that
        fits."""
        rng = self._rng
        data = bytearray(records)
        if len(data) < HEADER_SIZE:
            return rng.randbytes(rng.choice((0, 1, 61, 200)))
        if rng.random() < 0.5:
            position, width = rng.choice(BATCH_FIELDS)
            data[position : position + width] = _fixed(rng.choice(_NUMBERS), width)
        else:
            position = rng.randrange(HEADER_SIZE, len(data)) if len(data) > HEADER_SIZE else 0
            nasty = rng.choice((b"\xff", b"\x80", b"\x00", b"\xff" * 5, b"\xff" * 11, b"\x7f\x7f"))
            data[position : position + len(nasty)] = nasty
        if rng.random() < 0.5:
            data[17:21] = crc32c(bytes(data[21:])).to_bytes(4)
        way = rng.randrange(8)
        if way == 0:
            data *= 2
        elif way == 1:
            del data[rng.randrange(len(data)) :]
        return bytes(data)

    def _span(self, laid: Laid) -> tuple[int, int] | None:
        """The positions of a random element or tagged field: its beginning, and what is behind its end."""
        begin = self._of(laid, Kind.BEGIN)
        return None if begin is None else laid.span(begin)

    def _repeat(self, laid: Laid) -> list[Edit]:
        """Repeat an element or tagged field, and have its count say so in most cases."""
        span = self._span(laid)
        if span is None:
            return []
        begin, end = span
        times = self._rng.choice((1, 1, 2, 50, 400))
        return [Edit(end, end, laid.pieces[begin:end], times), *self._recounted(laid, begin, times)]

    def _drop(self, laid: Laid) -> list[Edit]:
        span = self._span(laid)
        if span is None:
            return []
        edit = Edit(*span, ())
        return [edit, *self._recounted(laid, span[0], -1)] if self._rng.random() < 0.5 else [edit]

    def _recounted(self, laid: Laid, begin: int, more: int) -> list[Edit]:
        if self._rng.random() < 0.2:
            return []
        at = _count_before(laid.pieces, begin)
        if at is None:
            return []
        piece = laid.pieces[at]
        if not piece.is_compact:
            data = _fixed(int.from_bytes(piece.data, signed=True) + more, len(piece.data))
        elif len(piece.data) == 1:
            data = uvarint(max(0, piece.data[0] + more))
        else:
            return []
        return [_changed(laid, at, data)]

    def _swap(self, laid: Laid) -> list[Edit]:
        pieces = laid.pieces
        if len(pieces) < 2:
            return []
        one, other = self._rng.randrange(len(pieces)), self._rng.randrange(len(pieces))
        edits = [Edit(one, one + 1, (pieces[other],)), Edit(other, other + 1, (pieces[one],))]
        return edits if one != other else []

    def _nest(self, laid: Laid) -> list[Edit]:
        """Put an element into another place of the message."""
        span = self._span(laid)
        if span is None:
            return []
        at = self._rng.randrange(len(laid.pieces) + 1)
        return [Edit(at, at, laid.pieces[span[0] : span[1]])]

    def _flip(self, laid: Laid) -> list[Edit]:
        """Flip bits, also of text: the result may not be UTF-8, or have control characters."""
        at = self._of(laid, Kind.CONTENT, Kind.NUMBER, Kind.LENGTH, Kind.COUNT, Kind.RECORDS)
        if at is None or not laid.pieces[at].data:
            return []
        data = bytearray(laid.pieces[at].data)
        for _ in range(self._rng.choice((1, 1, 3))):
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return [_changed(laid, at, bytes(data))]


def _changed(laid: Laid, at: int, data: bytes) -> Edit:
    """Another content for a piece."""
    piece = laid.pieces[at]
    return Edit(at, at + 1, (Piece(piece.kind, data, piece.is_compact),))


def _count_before(pieces: Sequence[Piece], begin: int) -> int | None:
    """Where the count is that counts the element at `begin`."""
    depth = 0
    for at in range(begin - 1, -1, -1):
        kind = pieces[at].kind
        if kind is Kind.COUNT and depth == 0:
            return at
        depth -= _DEPTHS.get(kind, 0)
        if depth < 0:
            return None
    return None


def _fixed(value: int, width: int) -> bytes:
    """The lowest bytes of a number."""
    return (value & ((1 << (8 * width)) - 1)).to_bytes(width)


# -- messages ----------------------------------------------------------------------------------------------


class Sensible:
    """Messages that a server or client could take seriously: names, numbers and batches from a stock by the
    name of the field.

    `names` has the values to choose from by the field's name; other texts are from `texts`.
    """

    def __init__(
        self,
        rng: random.Random,
        names: dict[str, tuple[Any, ...]],
        texts: tuple[str, ...],
        records: tuple[bytes, ...],
    ) -> None:
        self._rng = rng
        self._names = names
        self._texts = texts
        self._records = records

    def message(self, cls: type[Any], version: int) -> Any:
        """A message of a class. Fields that the version lacks have their defaults."""
        present = (field for field in fields_of(cls) if version in field.versions)
        return cls(**{field.name: self._field(field, version) for field in present})

    def _field(self, field: Field, version: int) -> Any:
        if version in field.nullable and self._rng.random() < 0.15:
            return None
        if field.tag is not None and self._rng.random() < 0.5:
            return _default(field)
        return self._value(field.type, field.name, version)

    def _value(self, type_: WireType, name: str, version: int) -> Any:
        rng = self._rng
        stock = self._names.get(name)
        match type_:
            case Array(element):
                return [self._value(element, name, version) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
            case Struct(cls):
                return self.message(cls, version)
            case _ if stock is not None:
                return rng.choice(stock)
            case Fixed(name="bool"):
                return rng.random() < 0.5
            case Fixed(name="uuid" | "float64"):
                return type_.default
            case Fixed():
                return rng.choice((0, 0, 1, 1, -1 if type_.code.islower() else 2, 100))
            case Variable.STRING:
                return rng.choice(self._texts)
            case Variable.RECORDS:
                return rng.choice(self._records)
            case Variable():
                return rng.randbytes(rng.choice((0, 4, 40)))
        raise AssertionError(type_)


def _default(field: Field) -> Any:
    match field.type, field.default:
        case Array(), ():
            return []
        case Struct(cls=cls), _ if not field.may_be_null:
            return cls()
        case _:
            return field.default
