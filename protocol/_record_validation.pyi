from holdfast_log.protocol.wire import Buffer

def validate(
    data: Buffer, record_count: int, base_timestamp: int, /
) -> tuple[int, str | None, int, int, int, int, int, tuple[int, ...]]: ...
def find_batch(data: Buffer, timestamp: int, least_offset: int, /) -> int: ...
def find_time(
    data: Buffer,
    record_count: int,
    base_timestamp: int,
    timestamp: int,
    max_timestamp: int,
    least_delta: int,
    /,
) -> tuple[int, int] | None: ...
