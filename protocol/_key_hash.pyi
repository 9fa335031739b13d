from holdfast_log.protocol.wire import Buffer

def murmur2(data: bytes, /) -> int: ...
def places(
    ends: Buffer,
    data: Buffer,
    valid: Buffer | None,
    start: int,
    rows: int,
    partitions: int,
    without_key: int,
    /,
) -> bytes: ...
