from holdfast_log.broker.log.known_reads import KnownRead
from holdfast_log.broker.log.reading import LogRead
from holdfast_log.broker.log.segment import Segment

def bind(log_read: type[LogRead], /) -> None: ...
def find(
    segment: Segment,
    reads: dict[tuple[object, int, int], KnownRead],
    offset: int,
    max_bytes: int,
    upper_offset: int,
    min_one_batch: bool,
    /,
) -> LogRead | None: ...
