"""The usual produce request: appended, and answered where that can be at once, in one compiled call.

Usual is a request without conditions and fences, for partitions that this broker leads, in topics that store
batches as they were sent; each batch is plain, not compressed, and continues what its producer has written;
their records are few enough to be read at once. A partition that has an owner is written by its owner, or for
it. For all others `UsualAppends.append` does nothing, and `Replicas.append` and the handler do everything.
They are the reference: for a usual request too they do the same, more slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from holdfast_log.broker.replication.admission import Origin
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.protocol.compiled import extension
from holdfast_log.protocol.frames import Part

CarriedOut: TypeAlias = tuple[int, int, list[Append]]
"""The `acks` and the timeout in ms of a request, and its appends, which have been carried out."""

MayWrite: TypeAlias = "Callable[[Any, str], bool]"
"""Whether an `Origin` may write to a topic. It logs nothing."""

_compiled = extension("_usual_append", "broker.replication")
"""None where every request is to be handled in Python."""


def is_compiled() -> bool:
    """Whether there are usual requests: without what was compiled none is, and nobody need ask."""
    return _compiled is not None


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
        if _compiled is None:
            return None
        answer: list[Part] | CarriedOut | None = _compiled.append(
            self._broker, origin, frame, version, position, correlation_id
        )
        return answer
