from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from holdfast_log.protocol.frames import Part
from holdfast_log.protocol.wire import Buffer

def receive(
    fd: int, scratch: memoryview, frame_bytes_max: int, large_frame_bytes: int, /
) -> list[memoryview] | int | None: ...
def request_fields(
    frame: Buffer, flexible: AbstractSet[int], /
) -> tuple[int, int, str | None, int] | None: ...
def send_parts(fd: int, parts: Sequence[Part], turn_bytes: int, begin: int, /) -> tuple[int, bool]: ...
