"""The usual produce request: appended, and answered where that can be at once, in one compiled call.

Usual is a request without conditions and fences, for partitions that this broker leads, in topics that store
batches as they were sent; each batch is plain, not compressed, and continues what its producer has written;
their records are few enough to be read at once. A partition that has an owner is written by its owner, or for
it. For all others `UsualAppends.append` does nothing, and `Replicas.append` and the handler do everything.
They are the reference: for a usual request too they do the same, more slowly.

Without what was compiled, `append_in_python` takes the requests of one partition that has no owner. It makes
no message of the request or the answer, and has `Replicas.append` do the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from holdfast_log.broker.log.decompression import INLINE_BYTES_MAX
from holdfast_log.broker.replication.admission import Origin
from holdfast_log.broker.replication.appends import ACKS_ALL, ACKS_LEADER, Append
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.protocol.batches import COMPRESSION_MASK, TRANSACTIONAL, attributes_of
from holdfast_log.protocol.compiled import extension
from holdfast_log.protocol.frames import Part
from holdfast_log.protocol.plain_produce import encode_acknowledgement, plain_request

CarriedOut: TypeAlias = tuple[int, int, list[Append]]
"""The `acks` and the timeout in ms of a request, and its appends, which have been carried out."""

MayWrite: TypeAlias = "Callable[[Any, str], bool]"
"""Whether an `Origin` may write to a topic. It logs nothing."""

_FIRST_VERSION = 3
"""The first with record batches."""
_UNUSUAL = COMPRESSION_MASK | TRANSACTIONAL


def append_in_python(
    broker: Any, origin: Origin, frame: memoryview, version: int, position: int, correlation_id: int
) -> list[Part] | CarriedOut | None:
    """What `UsualAppends.append` does, in Python. `broker` are the parts of the broker that it needs."""
    replicas, topics, _, _, queues, _, may_write = broker
    if version < _FIRST_VERSION or queues:
        return None
    plain = plain_request(frame, version, position)
    if plain is None:
        return None
    acks, timeout_ms, topic, index, records = plain
    if acks not in (ACKS_LEADER, ACKS_ALL) or attributes_of(records) & _UNUSUAL:
        return None
    partitions = topics.get(topic)
    partition = None if partitions is None else partitions.get(index)
    if partition is None or partition.admission is not None or len(records) > INLINE_BYTES_MAX:
        return None
    if may_write is not None and not may_write(origin, topic):
        return None
    append = Append(topic, index, records)
    appends = [append]
    replicas.append(appends, acks, origin)
    # Only writes with acks=all depend on the right to acknowledge.
    is_settled = replicas.is_settled(append, acks) if acks == ACKS_ALL else append.is_settled(acks)
    result = append.result
    if not is_settled or result is None or append.error is not None or append.condition is not None:
        return acks, timeout_ms, appends
    first_offset, _, append_time_ms, log_start_offset, _ = result
    row = topic, index, first_offset, append_time_ms, log_start_offset
    return encode_acknowledgement(version, correlation_id, row)


_compiled = extension("_usual_append", "broker.replication")
_in_python = append_in_python if _compiled is None else None
"""None where the handler is to do everything, as for the requests that are not usual."""


def is_compiled() -> bool:
    """Whether usual requests are carried out in one compiled call."""
    return _compiled is not None


def are_known() -> bool:
    """Whether there are usual requests. Otherwise nobody need ask."""
    return _compiled is not None or _in_python is not None


class UsualAppends:
    """Appends usual requests to the partitions of this broker, unless others are held before them. A request
    of a client that `may_write` keeps from one of its topics is not usual; None: all may write to all."""

    def __init__(
        self, replicas: Replicas, held_requests: HeldRequests, may_write: MayWrite | None = None
    ) -> None:
        self.replicas = replicas
        self._broker = (
            replicas,
            replicas.topics,
            replicas.right_to_acknowledge,
            replicas.watched,
            held_requests.queues,
            replicas.date_ms,
            may_write,
        )

    def append(
        self, origin: Origin, frame: memoryview, version: int, position: int, correlation_id: int
    ) -> list[Part] | CarriedOut | None:
        """Carry out the produce request of `origin` whose body is at a position of a frame.

        Returns None if it is not usual, and then nothing was done. Otherwise returns the response to it, as a
        frame with its size and header, if it is answered now. If not, an append has failed, or is not yet as
        durable as the request wants: the caller has to answer.
        """
        append = _in_python if _compiled is None else _compiled.append
        if append is None:
            return None
        answer: list[Part] | CarriedOut | None = append(
            self._broker, origin, frame, version, position, correlation_id
        )
        return answer
