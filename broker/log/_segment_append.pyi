from holdfast_log.broker.log.segment import Segment
from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.wire import Buffer

def append_batch(
    segment: Segment,
    records: Buffer,
    header: BatchHeader,
    base_offset: int,
    segment_bytes: int,
    age_ms_max: int,
    now_ms: int,
    /,
) -> bool: ...
