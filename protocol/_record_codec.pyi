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
