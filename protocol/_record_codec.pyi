from typing import Any, TypeVar

Row = TypeVar("Row", bound=tuple[Any, ...])

def encode(
    prefix_size: int,
    timestamps: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
    tails: list[bytes] | None,
) -> bytearray: ...
def decode(
    data: bytes, record_count: int, last_offset_delta: int, base_offset: int, base_timestamp: int
) -> tuple[
    list[int] | None,
    list[int],
    list[bytes | None],
    list[bytes | None],
    list[tuple[tuple[str, bytes | None], ...]] | None,
]: ...
def rows(
    row: type[Row],
    topic: str,
    partition: int,
    offsets: list[int] | int,
    timestamps: list[int],
    keys: list[Any],
    values: list[Any],
    headers: list[tuple[tuple[str, bytes | None], ...]] | None,
    timestamp_type: object,
    leader_epoch: int,
) -> list[Row]: ...
