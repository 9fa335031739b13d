from holdfast_log.protocol.arrow_columns_loop import ColumnParts, Rest
from holdfast_log.protocol.wire import Buffer

class ColumnBuffers:
    def __init__(self, has_headers: bool, row_limit: int, byte_limit: int, /) -> None: ...
    def __len__(self) -> int: ...
    def add(
        self,
        data: Buffer,
        record_count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        timestamp_type: int,
        append_time: int,
        start: int,
        end: int,
        rest: Rest = ...,
        /,
    ) -> Rest: ...
    def take(self) -> ColumnParts: ...
