"""Guards: which connections may write to a partition, and read from it.

An append is checked where it gets its offset, a fetch where it reads the log. A partition has a guard only
while there is something to guard: with `single.writer=off`, or while nobody owns it and nobody could come
back to own it, appends are not checked. Stock clients are checked like all others, by their connection.

A guard refuses everybody while this broker has no right to confirm the partition
(`broker.replication.right_to_confirm`): the broker does not hold its lease, or has yielded its leadership.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast_log.broker.log.settings import CLAIMED, REQUIRED
from holdfast_log.broker.ownership.confirming import unconfirmed
from holdfast_log.broker.ownership.interludes import AbsentWriterGuard, Displace, MakeWayFor
from holdfast_log.broker.ownership.readers import unassigned
from holdfast_log.broker.ownership.resources import Entry, Holdings, Resource, partition_key
from holdfast_log.broker.replication.admission import Admission, Origin
from holdfast_log.broker.replication.appends import ACKS_ALL
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for

_SHOWN_CLIENT_ID = 100
"""Maximum length of a client id in the log."""

_log = logging.getLogger(__name__)


class WriterGuard:
    """Admits appends of the partition's owner, and of the client bound to it by `writer_client_id`.

    `on_refused` is called with the resource for each refused append, which `refused_writes` logs.
    `may_confirm` returns whether this broker has the right to confirm the partition; without it, this broker
    does not know who owns the partition. `holdings` returns what a connection has claimed.
    """

    __slots__ = (
        "_holdings",
        "_may_confirm",
        "_on_refused",
        "_partition",
        "_refused_writes",
        "_resource",
        "_writer",
    )

    def __init__(
        self,
        partition: Partition,
        resource: Resource,
        writer: Entry | None,
        on_refused: Callable[[Resource], None],
        may_confirm: Callable[[], bool],
        refused_writes: RepeatedLog,
        holdings: Callable[[int], Holdings | None],
    ) -> None:
        self._holdings = holdings
        self._may_confirm = may_confirm
        self._partition = partition
        self._resource = resource
        self._writer = writer
        self._on_refused = on_refused
        self._refused_writes = refused_writes

    def admit(self, origin: Origin | None, acks: int) -> None:
        """Return None if `origin` may append.

        Raises BrokerError: INVALID_REQUIRED_ACKS; PRODUCER_FENCED; POLICY_VIOLATION for a stranger, and
        TOPIC_AUTHORIZATION_FAILED on a connection that has claimed the partition and does not own it;
        NOT_LEADER_OR_FOLLOWER while this broker has no right to confirm the partition.
        """
        writer = self._writer
        if origin is None:
            return
        if not self._may_confirm():
            raise unconfirmed()
        if writer is not None and (origin.id == writer.connection or _is_bound(writer, origin)):
            if acks != ACKS_ALL:
                raise error_for(
                    ErrorCode.INVALID_REQUIRED_ACKS,
                    f"{self._partition.topic}-{self._partition.index} is owned: its owner must write with "
                    "acks=all, because writes with other acks could be lost when the owner changes",
                )
            return
        self._on_refused(self._resource)
        refusal = self._refusal(origin)
        # Most stock clients show only the name of the error; the log has its message as well.
        self._refused_writes.info(
            _log,
            f"refused writes to topic {self._partition.topic}",
            "Refused a write of client %r: %s", origin.client_id[:_SHOWN_CLIENT_ID], refusal.message,
        )  # fmt: skip
        raise refusal

    def admits(self, origin: Origin, acks: int) -> bool:
        """Whether `origin` is the owner, or the client bound to it, and may append."""
        writer = self._writer
        return (
            acks == ACKS_ALL
            and writer is not None
            and (origin.id == writer.connection or _is_bound(writer, origin))
            and self._may_confirm()
        )

    def _refusal(self, origin: Origin) -> BrokerError:
        name = f"{self._partition.topic}-{self._partition.index}"
        by_whom = "it has no owner"
        if self._writer is not None and self._writer.grant is not None:
            owner = self._writer.grant.owner
            by_whom = f"{owner.owner_id} at {owner.host} owns it, generation {self._writer.generation}"
        elif self._resource.reserved_for is not None:
            owner = self._resource.reserved_for
            by_whom = f"{owner.owner_id} at {owner.host} owns the whole topic"
        if origin.id in self._resource.former_owners or self._was_bound(origin):
            return error_for(
                ErrorCode.PRODUCER_FENCED,
                f"this producer has lost {name} and must not write to it any more: {by_whom}",
            )
        # A stranger is told that only this partition refuses it: librdkafka takes TOPIC_AUTHORIZATION_FAILED
        # for an error of the whole topic, and writes to none of its partitions until its next metadata.
        # A claimant is told to find out how its claim stands: owners resume, also those of older versions.
        code = ErrorCode.POLICY_VIOLATION
        if self._has_claimed(origin):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return error_for(
            code,
            f"only its owner may write to {name} "
            f"(single.writer={self._partition.log.settings.single_writer}), and {by_whom}. Claim it first, "
            "with a Lease or an ExclusiveProducer; for a client that cannot be changed, "
            "let a process beside it claim with writer_client_id",
        )

    def _has_claimed(self, origin: Origin) -> bool:
        holdings = self._holdings(origin.id)
        return holdings is not None and self._resource.key in holdings.keys

    def _was_bound(self, origin: Origin) -> bool:
        return any(
            grant.owner.binds(origin.client_id, origin.principal)
            for entry in self._resource.entries.values()
            for grant in entry.history
        )


def _is_bound(writer: Entry, origin: Origin) -> bool:
    grant = writer.grant
    return grant is not None and grant.owner.binds(origin.client_id, origin.principal)


class ReaderGuard:
    """Refuses fetches of a connection whose group has another reader. With `single.reader=required` it
    refuses all connections that are not the reader of some group.

    `holdings` returns what a connection owns. `may_confirm` returns whether this broker has the right to
    confirm the partition. `displace` ends the grant of a reader that is gone: a fetch that would have been
    refused while it was there is served after that.
    """

    __slots__ = ("_displace", "_holdings", "_is_displacing", "_may_confirm", "_partition", "_resource")

    def __init__(
        self,
        partition: Partition,
        resource: Resource,
        holdings: Callable[[int], Holdings | None],
        may_confirm: Callable[[], bool],
        displace: Displace,
    ) -> None:
        self._may_confirm = may_confirm
        self._partition = partition
        self._resource = resource
        self._holdings = holdings
        self._displace = displace
        self._is_displacing = False

    def admit(self, connection: int) -> None:
        """Return if a consumer may read.

        Raises BrokerError: TOPIC_AUTHORIZATION_FAILED; for members of consumer groups OWNERSHIP_FENCED;
        NOT_LEADER_OR_FOLLOWER while this broker has no right to confirm the partition, and while the grant of
        a reader that is gone is being ended.
        """
        if not self._may_confirm():
            raise unconfirmed()
        holdings = self._holdings(connection)
        is_owner = False
        displaced = None
        for group in holdings.groups if holdings is not None else ():
            entry = self._resource.entries.get(group)
            if entry is not None and entry.has_absent_reader:
                displaced = entry
            if entry is None or not _is_guarded(entry):
                continue
            if entry.connection != connection:
                if entry.last is not None and entry.last.owner.assignment is not None:
                    raise unassigned(self._resource.key, entry, entry.last.owner)
                raise self._refusal(f"group {group!r} has another reader, generation {entry.generation}")
            is_owner = True
        if not is_owner and self._partition.log.settings.single_reader == REQUIRED:
            raise self._refusal("this connection does not own it in any group")
        if displaced is not None:
            raise self._displacing(displaced, connection)

    def _displacing(self, absent: Entry, connection: int) -> BrokerError:
        """Begin to end the grant of a reader that is gone. Returns the error for the fetch, which is sent
        again."""
        name = f"{self._partition.topic}-{self._partition.index}"
        if not self._is_displacing:
            self._is_displacing = True
            done = self._displace(partition_key(self._partition), absent.group, connection)
            done.addCallback(self._displaced)
        return error_for(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"the reader of {name} in group {absent.group!r} is gone, and could come back until its grant "
            "has been ended, which this fetch has asked for: try again",
        )

    def _displaced(self, _: None) -> None:
        self._is_displacing = False

    def _refusal(self, why: str) -> BrokerError:
        setting = self._partition.log.settings.single_reader
        return error_for(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{self._partition.topic}-{self._partition.index} has one reader (single.reader={setting}): "
            f"{why}. Claim it to read, and fetch on the connection that owns it",
        )


def writer_guard(
    partition: Partition,
    resource: Resource | None,
    on_refused: Callable[[Resource], None],
    may_confirm: Callable[[], bool],
    refused_writes: RepeatedLog,
    make_way: MakeWayFor,
    holdings: Callable[[int], Holdings | None],
) -> Admission | None:
    """The guard that `single.writer` and the partition's owner require, also an owner that is gone and may
    come back; None if they require none."""
    policy = partition.log.settings.single_writer
    writer = None if resource is None else resource.writer
    is_kept = writer is not None or (resource is not None and resource.reserved_for is not None)
    if policy == REQUIRED or (is_kept and policy == CLAIMED):
        known = resource or Resource(partition_key(partition))
        return WriterGuard(partition, known, writer, on_refused, may_confirm, refused_writes, holdings)
    absent = None if resource is None or policy != CLAIMED else resource.absent_writer
    if absent is not None and absent.last is not None:
        return AbsentWriterGuard(partition_key(partition), absent.last, make_way, may_confirm)
    return None


def _is_guarded(entry: Entry) -> bool:
    """Whether at most one connection of the group may read; none may after all members of a consumer group
    have left."""
    return entry.reads or (entry.last is not None and entry.last.owner.assignment is not None)


def reader_guard(
    partition: Partition,
    resource: Resource | None,
    holdings: Callable[[int], Holdings | None],
    may_confirm: Callable[[], bool],
    displace: Displace,
) -> ReaderGuard | None:
    """The guard that `single.reader` and the partition's readers require; None if they require none."""
    policy = partition.log.settings.single_reader
    is_read = resource is not None and any(
        _is_guarded(entry) or entry.has_absent_reader for entry in resource.entries.values()
    )
    if policy == REQUIRED or (is_read and policy == CLAIMED):
        known = resource or Resource(partition_key(partition))
        return ReaderGuard(partition, known, holdings, may_confirm, displace)
    return None
