"""Reading in a group with single readers: a member attaches itself at the leaders before it fetches.

A leader lets a connection read the partitions of the member that has attached itself on that connection. So
the member attaches itself again after every reconnect, at every new leader, and in every generation; until
then nothing of the partition is fetched or returned. A refusal by a leader does not end the membership: the
coordinator decides that, and the member asks it at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.conversation import Conversation
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import is_retriable
from holdfast_log.clients.feedback.events import PartitionWithheld
from holdfast_log.clients.fetching.fetcher import Fetcher
from holdfast_log.clients.fetching.positions import Position
from holdfast_log.clients.fetching.record_buffer import RecordBuffer
from holdfast_log.clients.groups.membership import NO_GENERATION, GroupIdentity
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.group_readers import (
    AttachedPartition,
    AttachReaderRequest,
    AttachReaderResponse,
    ReadPartitions,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_PARTITIONS_AT_ONCE = 2_000
"""Maximum number of partitions that one request attaches; a broker refuses twice as many."""


@dataclass(slots=True, eq=False)
class _Attachment:
    """A partition, and the conversation with its leader `node` on which this member is attached."""

    position: Position
    node: int = NO_NODE
    conversation: Conversation | None = None
    not_before_ms: int = 0
    is_told: bool = False
    """Whether an event has reported why the application gets no records."""


class Attachments:
    """The partitions of one member.

    `identity` gives its generation and id. `doubt` makes it send a heartbeat at once, whose answer shows
    whether it still is a member.
    """

    def __init__(
        self,
        connection: Connection,
        fetcher: Fetcher,
        buffer: RecordBuffer,
        retry_backoff_ms: int,
        *,
        identity: Callable[[], GroupIdentity],
        doubt: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._metadata = connection.metadata
        self._fetcher = fetcher
        self._retry_backoff_ms = retry_backoff_ms
        self._identity = identity
        self._buffer = buffer
        self._doubt = doubt
        self._attachments: dict[TopicPartition, _Attachment] = {}
        self._calls: dict[int, Call] = {}

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin to attach at the leaders of newly assigned partitions, which must have positions."""
        for partition in partitions:
            position = self._fetcher.positions[partition]
            position.is_unowned = True
            self._attachments[partition] = _Attachment(position)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that are no longer read."""
        for partition in partitions:
            self._attachments.pop(partition, None)

    def hold_back(self) -> None:
        """Suspend partitions that are not attached on the current connection to their leader.

        Called before fetches are made, and before records are returned to the application.
        """
        for partition, attachment in list(self._attachments.items()):
            position = attachment.position
            if self._fetcher.positions.get(partition) is not position:
                del self._attachments[partition]  # The application has removed it.
                continue
            if attachment.conversation is None:
                continue
            # A refused fetch has set `is_unowned`: attach again, and the answer shows why.
            if position.is_unowned or not self._is_current(attachment):
                attachment.conversation = None
                position.is_unowned = True
                self._buffer.put_back(position)

    def _is_current(self, attachment: _Attachment) -> bool:
        node = attachment.node
        return (
            self._metadata.leader(*attachment.position.key) == node
            and self._connection.conversation(node) is attachment.conversation
        )

    # Out: calls ---------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        """The requests to send now: one to each leader, for all of its partitions."""
        who = self._identity()
        if who.generation == NO_GENERATION:
            return []  # The membership has ended; the partitions will be revoked.
        wanted: dict[int, dict[str, list[int]]] = {}
        counts: Counter[int] = Counter()
        for (topic, number), attachment in self._attachments.items():
            if attachment.conversation is not None or attachment.not_before_ms > now_ms:
                continue
            node = self._metadata.leader(topic, number)
            if node == NO_NODE:
                self._metadata.renew()
            elif node not in self._calls and counts[node] < _PARTITIONS_AT_ONCE:
                counts[node] += 1
                wanted.setdefault(node, {}).setdefault(topic, []).append(number)
        calls = []
        for node, topics in wanted.items():
            request = AttachReaderRequest(
                group=who.group_id,
                member_id=who.member_id,
                generation=who.generation,
                topics=[ReadPartitions(topic=topic, partitions=rows) for topic, rows in topics.items()],
            )
            self._calls[node] = Call(node, request, tag=who)
            calls.append(self._calls[node])
        return calls

    def next_event_ms(self, now_ms: int) -> int | None:
        """When the next retry is due; None if none is."""
        times = [
            attachment.not_before_ms
            for attachment in self._attachments.values()
            if attachment.conversation is None and attachment.not_before_ms > now_ms
        ]
        return min(times, default=None)

    # In: replies --------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply; returns whether it answered one of these calls."""
        node = reply.call.node
        if self._calls.get(node) is not reply.call:
            return False
        del self._calls[node]
        request = reply.call.request
        assert isinstance(request, AttachReaderRequest)
        error = reply.error
        if isinstance(reply.response, AttachReaderResponse):
            if not reply.response.error_code:
                for row in reply.response.partitions:
                    self._take(row, reply, now_ms)
                return True
            error = error_for(reply.response.error_code, reply.response.error_message)
        assert error is not None
        for topic in request.topics:
            for number in topic.partitions:
                attachment = self._asked(TopicPartition(topic.topic, number), reply)
                if attachment is not None:
                    self._pause(attachment, error, now_ms)
        return True

    def _take(self, row: AttachedPartition, reply: Reply, now_ms: int) -> None:
        attachment = self._asked(TopicPartition(row.topic, row.partition), reply)
        if attachment is None:
            return
        if row.error_code:
            self._pause(attachment, error_for(row.error_code, row.error_message), now_ms)
            return
        attachment.node, attachment.conversation = reply.call.node, reply.conversation
        attachment.is_told = False
        attachment.position.is_unowned = False
        attachment.position.last_error = None

    def _asked(self, partition: TopicPartition, reply: Reply) -> _Attachment | None:
        """The attachment that a reply is about; None if the request was sent in another generation."""
        was: GroupIdentity = reply.call.tag
        now = self._identity()
        if (was.member_id, was.generation) != (now.member_id, now.generation):
            return None
        return self._attachments.get(partition)

    def _pause(self, attachment: _Attachment, error: Exception, now_ms: int) -> None:
        attachment.not_before_ms = now_ms + self._retry_backoff_ms
        attachment.position.last_error = error
        code = error.code if isinstance(error, BrokerError) else None
        if code is not ErrorCode.CLAIM_QUEUED:
            self._metadata.renew()
        if code is ErrorCode.OWNERSHIP_FENCED:
            self._doubt()
        if code is not ErrorCode.CLAIM_QUEUED and not is_retriable(error):
            self._withheld(attachment, error)

    def _withheld(self, attachment: _Attachment, error: Exception) -> None:
        """Report once that the leader does not let this member read, or does not support single readers."""
        if not attachment.is_told:
            attachment.is_told = True
            self._connection.events.note(PartitionWithheld(*attachment.position.key, error))
