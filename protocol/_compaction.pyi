from protocol.wire import Buffer

def add_batch_keys(
    payload: Buffer,
    record_count: int,
    last_offset_delta: int,
    base_offset: int,
    table: bytearray,
    count: int,
    count_max: int,
    first_offset: int,
) -> tuple[int, int, int]: ...
def add_keys(
    data: Buffer,
    position: int,
    expected: int,
    upper: int,
    table: bytearray,
    count: int,
    count_max: int,
    first_offset: int,
) -> tuple[int, int, int, int, int]: ...
def filter_records(
    payload: Buffer,
    record_count: int,
    last_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
    attributes: int,
    keeps_first: bool,
    table: bytearray,
    map_end: int,
    now_ms: int,
    horizon_ms: int,
) -> tuple[bytes, int, int, bool, bool] | None: ...
def filter_batches(
    data: Buffer,
    position: int,
    expected: int,
    upper: int,
    table: bytearray,
    map_end: int,
    kept_headers: Buffer,
    kept_firsts: Buffer,
    previous_epoch: int,
    now_ms: int,
    horizon_ms: int,
) -> tuple[bytes, bytes, int, int, int, int]: ...
