"""What a declaration means: versions, null, tags, defaults, records; and what is refused."""

from __future__ import annotations

import tracemalloc
from typing import Any
from uuid import UUID

import pytest

from holdfast_log.protocol.frames import FileSlice, join_parts
from holdfast_log.protocol.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    InvalidMessage,
    MalformedMessage,
    ProtocolMessage,
    Records,
    SchemaError,
    TooManyElements,
    UnsupportedField,
    UnsupportedVersion,
    decode,
    decode_from,
    encode,
    encode_parts,
    message,
    received_records,
    struct,
    wire,
)


@message(versions="0")
class Train(ProtocolMessage):
    cars: list[Int32]


@struct
class Wheel:
    size: Int16 = 28
    spokes: Int32 = wire("1+", default=32)


@message(versions="0-3", flexible="2+")
class Bicycle(ProtocolMessage):
    name: str
    wheels: list[Wheel]
    owner: str | None = wire(nullable="1+")
    bell: bool = wire("1+", ignorable=True)
    frame_id: UUID = wire("2+")
    lamps: Int8 = wire("2+", tag=0, default=1)
    stickers: list[str] = wire("3+", tag=1)
    rear: Wheel = wire("3+", tag=5)
    speed: Int64 = wire("3", default=-1)


@message(versions="0-3", flexible="1+")
class Parcel(ProtocolMessage):
    """As Kafka declares a struct that may be null: "nullableVersions", in flexible versions only."""

    weight: Int16
    wheel: Wheel | None = wire("1+")
    spare: Wheel | None = wire("2+", nullable="3+")
    lost: Wheel | None = wire("1+", tag=0)
    count: Int8 = wire("1+")


@message(versions="0-1", flexible="1+")
class Cargo(ProtocolMessage):
    label: str
    records: Records | None
    count: Int32


@struct
class Later:
    value: Int32 = wire("1+")


@message(versions="0-1")
class Bomb(ProtocolMessage):
    """In version 0 its items take no bytes at all."""

    items: list[Later]


class PaperFile:
    """A file of which nothing but its bytes is known."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def fileno(self) -> int:
        raise OSError("no file of the system")

    def pread(self, length: int, offset: int) -> bytes:
        return self.data[offset : offset + length]


def test_a_fixed_version_has_two_byte_string_lengths_and_four_byte_array_lengths() -> None:
    bicycle = Bicycle(name="tandem", wheels=[Wheel(size=26), Wheel(size=-1)], owner="")
    assert encode(bicycle, 0) == b"\x00\x06tandem\x00\x00\x00\x02\x00\x1a\xff\xff\x00\x00"


def test_a_flexible_version_has_varint_lengths_and_tagged_fields_in_order() -> None:
    frame_id = UUID("00112233-4455-6677-8899-aabbccddeeff")
    bicycle = Bicycle(
        name="x" * 200, wheels=[Wheel()], owner=None, frame_id=frame_id, speed=7, lamps=2, rear=Wheel(size=1)
    )
    assert encode(bicycle, 3) == (
        b"\xc9\x01" + b"x" * 200  # 201 as a varint
        + b"\x02" + b"\x00\x1c" + b"\x00\x00\x00\x20" + b"\x00"  # one wheel, without tagged fields
        + b"\x00"  # no owner
        + b"\x00"  # no bell
        + frame_id.bytes
        + b"\x00\x00\x00\x00\x00\x00\x00\x07"
        + b"\x02"  # two tagged fields; the stickers are left out
        + b"\x00\x01\x02"
        + b"\x05\x07" + b"\x00\x01" + b"\x00\x00\x00\x20" + b"\x00"
    )  # fmt: skip


def test_fields_that_a_version_lacks_hold_their_defaults_after_decoding() -> None:
    bicycle = decode(Bicycle, 0, encode(Bicycle(name="b", wheels=[Wheel()]), 0))
    assert bicycle == Bicycle(name="b", wheels=[Wheel(size=28, spokes=32)], owner="", bell=False)
    assert bicycle.frame_id == ZERO_UUID
    assert bicycle.lamps == 1
    assert bicycle.speed == -1


def test_lists_and_structs_of_absent_fields_are_not_shared() -> None:
    encoded = encode(Bicycle(name="b", wheels=[]), 0)
    one, other = decode(Bicycle, 0, encoded), decode(Bicycle, 0, encoded)
    one.stickers.append("fragile")
    one.rear.size = 3
    assert other.stickers == []
    assert other.rear == Wheel()


def test_a_field_without_a_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="wheels"):
        Bicycle(name="b")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("field", "value"),
    [("speed", 3), ("stickers", ["s"]), ("rear", Wheel(size=2)), ("frame_id", UUID(int=1))],
)
def test_a_value_is_not_dropped_silently_from_a_version_without_the_field(field: str, value: Any) -> None:
    bicycle = Bicycle(name="b", wheels=[])
    setattr(bicycle, field, value)
    with pytest.raises(UnsupportedField, match=f"Bicycle.{field} is set, but version 1 "):
        encode(bicycle, 1)


def test_an_ignorable_value_is_dropped() -> None:
    plain, belled = Bicycle(name="b", wheels=[]), Bicycle(name="b", wheels=[], bell=True)
    assert encode(belled, 0) == encode(plain, 0)
    assert encode(belled, 1) != encode(plain, 1)


def test_a_struct_that_may_be_null_has_a_byte_before_it() -> None:
    assert encode(Parcel(weight=7), 0) == b"\0\7"
    assert encode(Parcel(weight=7), 1) == b"\0\7" + b"\xff" + b"\0" + b"\0"
    wheel = Wheel(size=1, spokes=2)
    parcel = Parcel(weight=7, wheel=wheel, count=3)
    body = b"\0\1" + b"\0\0\0\2" + b"\0"
    assert encode(parcel, 1) == b"\0\7" + b"\1" + body + b"\3" + b"\0"
    parcel.lost = wheel
    tagged = b"\1" + b"\0" + b"\x08" + b"\1" + body
    assert encode(parcel, 1) == b"\0\7" + b"\1" + body + b"\3" + tagged
    for version in (1, 3):
        assert decode(Parcel, version, encode(parcel, version)) == parcel
        assert decode(Parcel, version, encode(Parcel(weight=7), version)) == Parcel(weight=7)
    # Any negative byte is null to Kafka, any other says that the struct is there.
    assert decode(Parcel, 1, b"\0\7" + b"\x80" + b"\0" + b"\0") == Parcel(weight=7)
    assert decode(Parcel, 1, b"\0\7" + b"\0" + body + b"\3" + b"\0").wheel == wheel
    with pytest.raises(MalformedMessage):
        decode(Parcel, 1, b"\0\7\1")


def test_a_struct_is_null_only_where_the_version_allows_it() -> None:
    with pytest.raises(InvalidMessage):
        encode(Parcel(weight=7), 2)
    parcel = Parcel(weight=7, spare=Wheel())
    assert decode(Parcel, 2, encode(parcel, 2)) == parcel
    with pytest.raises(UnsupportedField, match=r"Parcel\.wheel is set"):
        encode(Parcel(weight=7, wheel=Wheel()), 0)


def test_a_struct_that_may_be_null_in_a_version_that_is_not_flexible_is_refused() -> None:
    @message(versions="0-1", flexible="1+")
    class Old(ProtocolMessage):
        wheel: Wheel | None

    with pytest.raises(SchemaError, match="not flexible"):
        encode(Old(wheel=None), 0)
    assert encode(Old(wheel=None), 1) == b"\xff\0"


def test_null_only_where_the_version_allows_it() -> None:
    ownerless = Bicycle(name="b", wheels=[], owner=None)
    assert decode(Bicycle, 1, encode(ownerless, 1)).owner is None
    with pytest.raises(InvalidMessage, match="Bicycle v0"):
        encode(ownerless, 0)
    with pytest.raises(MalformedMessage, match=r"Bicycle\.owner: a length of -1"):
        decode(Bicycle, 0, b"\x00\x01b\x00\x00\x00\x00\xff\xff")


def test_unknown_tagged_fields_are_skipped() -> None:
    encoded = encode(Bicycle(name="b", wheels=[]), 3)
    assert encoded[-1:] == b"\x00"
    newer = encoded[:-1] + b"\x03" + b"\x00\x01\x09" + b"\x02\x03abc" + b"\xa9\x46\x00"
    bicycle, end = decode_from(Bicycle, 3, newer + b"next", 0)
    assert bicycle.lamps == 9
    assert end == len(newer)


def test_unknown_tagged_fields_are_skipped_where_none_are_known() -> None:
    encoded = encode(Cargo(label="c", records=None, count=5), 1)
    newer = encoded[:-1] + b"\x81\x00" + b"\x07\x02ab"
    assert decode_from(Cargo, 1, newer) == (Cargo(label="c", records=None, count=5), len(newer))


@pytest.mark.parametrize(
    "tagged",
    [
        pytest.param(b"\x01\x00\x02\x09\x09", id="longer than its type"),
        pytest.param(b"\x01\x00\x00", id="shorter than its type"),
        pytest.param(b"\x01\x02\x7f", id="longer than the buffer"),
        pytest.param(b"\x7f", id="too many"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff", id="endless number"),
        pytest.param(b"\xff\xff\xff\xff\x7f", id="number over 32 bits"),
        pytest.param(b"\x80\x01" + b"\x09\x00" * 128, id="more than any struct has"),
    ],
)
def test_broken_tagged_fields_are_refused(tagged: bytes) -> None:
    encoded = encode(Bicycle(name="b", wheels=[]), 3)
    with pytest.raises(MalformedMessage):
        decode(Bicycle, 3, encoded[:-1] + tagged)


def test_a_reader_may_bound_the_elements_of_a_message() -> None:
    bicycle = Bicycle(name="b", wheels=[Wheel(), Wheel()], stickers=["one"])
    encoded = encode(bicycle, 3)
    assert decode_from(Bicycle, 3, encoded, elements_max=4) == (bicycle, len(encoded))
    with pytest.raises(TooManyElements):
        decode_from(Bicycle, 3, encoded, elements_max=3)  # two wheels, one tagged field, one sticker in it


def test_plain_numbers_count_for_little() -> None:
    train = Train(cars=list(range(80)))
    encoded = encode(train, 0)
    assert decode_from(Train, 0, encoded, elements_max=10) == (train, len(encoded))
    with pytest.raises(TooManyElements):
        decode_from(Train, 0, encoded, elements_max=9)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_truncation_is_refused(version: int) -> None:
    fields: dict[str, Any] = {} if version < 2 else {"lamps": 4, "frame_id": UUID(int=7)}
    encoded = encode(Bicycle(name="name", wheels=[Wheel(), Wheel()], **fields), version)
    for length in range(len(encoded)):
        with pytest.raises(MalformedMessage):
            decode(Bicycle, version, encoded[:length])


def test_text_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="utf-8"):
        decode(Bicycle, 0, b"\x00\x02\xff\xfe\x00\x00\x00\x00\x00\x00")


def test_a_lying_array_length_is_refused_before_anything_is_allocated() -> None:
    lie = b"\x00\x01b\x7f\xff\xff\xff" + bytes(1000)
    decode(Bicycle, 0, b"\x00\x01b" + bytes(4) + b"\x00\x00")  # Generates the decoder: that takes memory.
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match=r"Bicycle\.wheels: a length of 2147483647; only 1000"):
            decode(Bicycle, 0, lie)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_records_are_decoded_as_a_view_of_the_buffer() -> None:
    buffer = bytearray(encode(Cargo(label="c", records=b"0123456789", count=1), 0))
    cargo = decode(Cargo, 0, buffer)
    assert isinstance(cargo.records, memoryview)
    buffer[buffer.index(b"5")] = ord("!")
    assert cargo.records == b"01234!6789"
    assert received_records(cargo.records) is cargo.records
    assert received_records(None) == b""


@pytest.mark.parametrize("version", [0, 1])
def test_large_records_are_parts_of_their_own_and_never_copied(version: int) -> None:
    view = memoryview(bytes(range(256)) * 40)
    slice_ = FileSlice(PaperFile(b"on paper" * 100), 8, 80)
    parts = encode_parts(Cargo(label="c", records=[view, slice_], count=77), version)

    assert parts[1] is view
    assert parts[2] is slice_
    assert [type(part) for part in parts] == [bytes, memoryview, FileSlice, bytes]
    whole = join_parts(parts)
    assert whole == encode(Cargo(label="c", records=bytes(view) + b"on paper" * 10, count=77), version)
    assert decode(Cargo, version, whole).count == 77


def test_small_records_are_copied_between_their_neighbours() -> None:
    parts = encode_parts(Cargo(label="c", records=memoryview(b"small"), count=1), 0, prefix=b"prefix")
    assert parts == [b"prefix\x00\x01c\x00\x00\x00\x05small\x00\x00\x00\x01"]


def test_values_that_a_type_cannot_carry_are_invalid() -> None:
    for bad in (
        Cargo(label="c", records=None, count=2**31),
        Cargo(label="c", records=None, count="1"),  # type: ignore[arg-type]
        Cargo(label=None, records=None, count=1),  # type: ignore[arg-type]
        Cargo(label="\ud800", records=None, count=1),
        Cargo(label="x" * 40_000, records=None, count=1),
    ):
        for version in (0, 1):
            with pytest.raises(InvalidMessage):
                encode(bad, version)


def test_versions_outside_of_the_declaration_are_unsupported() -> None:
    with pytest.raises(UnsupportedVersion, match="Bicycle has versions 0 to 3, not 4"):
        encode(Bicycle(name="b", wheels=[]), 4)
    with pytest.raises(UnsupportedVersion):
        decode(Bicycle, -1, b"")


def test_declarations_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"Odd\.number"):

        @struct
        class Odd:
            number: int

    with pytest.raises(SchemaError, match="null"):

        @struct
        class NullNumber:
            number: Int32 | None

    with pytest.raises(SchemaError, match=r"Tandem\.trailer can have no default"):

        @struct
        class Tandem:
            trailer: Bomb = wire("1+")

    with pytest.raises(SchemaError, match="arrays of arrays"):

        @struct
        class Nested:
            numbers: list[list[Int32]]


def test_elements_of_no_bytes_are_refused_because_nothing_bounds_their_number() -> None:
    assert decode(Bomb, 1, b"\x00\x00\x00\x01\x00\x00\x00\x09") == Bomb(items=[Later(value=9)])
    with pytest.raises(SchemaError, match="without bytes"):
        decode(Bomb, 0, b"\x7f\xff\xff\xff")
