"""The usual fetch of one partition: answered, or kept until there are records for it, in few compiled calls.
That of several partitions is in `several_fetch`.

Usual is a consumer's fetch of one partition, without a session or in a session that goes on and has no other
partition. This broker leads the partition, in the leader epoch that the fetch expects. Nobody owns it who
would read it alone, and its records are in memory. For all others `UsualFetches.begin` does nothing, and the
handler, `Fetches`, `OneFetch` and `SessionFetch` do everything. They are the reference: for a usual fetch too
they do the same, more slowly. A fetch that waits is looked at by the same rules at each change, so it may
become an unusual one, which `look` and `end` handle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.session_partitions import FetchSession
from holdfast_log.broker.replication.several_fetch import SeveralFetch, SeveralFetches
from holdfast_log.protocol.compiled import extension
from holdfast_log.protocol.frames import Part

_compiled = extension("_usual_fetch", "broker.replication")
"""None where every fetch is to be handled in Python."""


def is_compiled() -> bool:
    """Whether there are usual fetches: without what was compiled none is, and nobody need ask."""
    return _compiled is not None


class KeptFetch(Protocol):
    """A fetch that waits for records: the compiled `Kept`, to which `Waiting` and the dispatcher talk too."""

    session: FetchSession | None
    topic: str
    topic_id: UUID
    index: int
    offset: int
    max_bytes: int
    min_bytes: int
    leader_epoch: int
    isolation: int
    owner: int
    """The id of the connection."""

    def count(self, end_offset: int, size: int, /) -> None:
        """Note what Python has read for the fetch, which waits on: `size` bytes up to `end_offset`. So it is
        not looked at before the bytes that it lacks have been appended."""
        ...

    def wait(self, dispatcher: Any, reply: Any, encode: Any, times: Any, /) -> None:
        """See `requests.handler.Waits`."""
        ...


Unusual: TypeAlias = "Callable[[KeptFetch, bool], bool]"
"""Reads for a fetch that was usual when it came and is not any more, and answers it if it is complete, or if
its wait ends (the second argument). Returns whether it was answered."""


MayReadTopic: TypeAlias = "Callable[[Any, str], bool]"
"""Whether the client of a connection may read a topic."""


class UsualFetches:
    """Answers usual fetches of the partitions of this broker, and keeps those that wait. `several` does so
    for those of several partitions.

    A response has at most `max_bytes` of records. `closed` is called when a connection closes that has sent a
    fetch that was kept. `unusual` handles such a fetch where it is not usual any more. `may_read` judges
    clients; None: all may read all. With it only fetches are usual that are answered at once: no right is
    remembered.
    """

    def __init__(
        self,
        replicas: Replicas,
        metadata: MetadataCache,
        max_bytes: int,
        closed: Callable[[Any], None],
        unusual: Unusual,
        several: SeveralFetches,
        may_read: MayReadTopic | None = None,
    ) -> None:
        self._unusual = unusual
        self._several = several
        sessions = replicas.sessions.by_id
        self._broker = (
            self,
            replicas.topics,
            metadata.name_of,
            replicas.readers,
            closed,
            sessions,
            replicas.clock_s,
            max_bytes,
            may_read,
        )

    def begin(
        self, connection: Any, frame: memoryview, version: int, position: int, correlation_id: int
    ) -> list[Part] | KeptFetch | SeveralFetch | None:
        """Begin the fetch whose body is at a position of a frame of `connection`.

        Returns None if it is not usual, and then nothing was done; the response to it, as a frame with its
        size and header, if it is answered now; otherwise the fetch, which then has to wait.
        """
        if _compiled is None:
            return None
        begun: list[Part] | KeptFetch | None = _compiled.begin(
            self._broker, connection, frame, version, position, correlation_id
        )
        if begun is None:
            return self._several.begin(connection, frame, version, position, correlation_id)
        return begun

    def look(self, kept: KeptFetch) -> bool:
        """Read for a fetch that is not usual now, and answer it if that completes it. Returns whether it
        did."""
        return self._unusual(kept, False)

    def end(self, kept: KeptFetch) -> bool:
        """Answer a fetch that is not usual now, and whose wait ends."""
        return self._unusual(kept, True)
