"""A simulated member that speaks Kafka's classic group protocol."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.coordinator.groups.consumer_protocol import encode_assignment, encode_subscription
from holdfast_log.protocol.consumer_protocol import decode_assignment
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from holdfast_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from holdfast_log.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition as GroupPartition
from tests.sim.history import TopicPartition
from tests.sim.member import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Member

_PROTOCOLS = ("range", "roundrobin")
_PROTOCOL_TYPE = "consumer"
_FETCH_VERSION = 7
"""Last version of OffsetFetch whose request names a single group."""


class ClassicMember(Member):
    """An eager member: it gives up all partitions before each rebalance."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._shared_out: int | None = None
        """Number of partitions that the topic had when this member, as leader, assigned them."""

    def forget_member_id(self) -> None:
        self.member_id = ""

    def metadata_arrived(self) -> None:
        if self.positions is not None and self._shared_out not in (None, len(self._partitions())):
            self.stop_working()
            self.join()

    def _partitions(self) -> list[TopicPartition]:
        known = self.topics.get(self.topic)
        return [(self.topic, number) for number in sorted(known.leaders)] if known is not None else []

    def take_part(self) -> None:
        subscription = encode_subscription([self.topic])
        protocols = self.rng.sample(_PROTOCOLS, len(_PROTOCOLS))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription) for name in protocols],
        )
        self.ask(request, self._joined)

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
            return
        if response.error_code != ErrorCode.NONE:
            self.not_joined(response.error_code)
            return
        self.member_id = response.member_id
        self.generation = response.generation_id
        is_leader = response.leader == self.member_id
        members = sorted(member.member_id for member in response.members)
        assignments = self._share_out(response.protocol_name or "", members) if is_leader else []
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=response.protocol_name,
            assignments=assignments,
        )
        self.ask(request, self._synced)

    def _share_out(self, protocol: str, members: Sequence[str]) -> list[SyncGroupRequestAssignment]:
        partitions = self._partitions()
        self._shared_out = len(partitions)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for number, at in enumerate(partitions):
            if protocol == "range":
                shares[members[number * len(members) // len(partitions)]].append(at)
            else:
                shares[members[number % len(members)]].append(at)
        return [
            SyncGroupRequestAssignment(
                member_id=member, assignment=encode_assignment([GroupPartition(*at) for at in share])
            )
            for member, share in shares.items()
        ]

    def _synced(self, response: SyncGroupResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            self._shared_out = None
            self.not_joined(response.error_code)
            return
        mine: list[TopicPartition] = [
            (topic, number) for topic, number in decode_assignment(response.assignment)
        ]
        self.told.owns(self.name, self.group, self.generation, mine)
        self._fetch_offsets(mine)

    def _fetch_offsets(self, mine: Sequence[TopicPartition]) -> None:
        numbers = [number for _, number in mine]
        topics = [OffsetFetchRequestTopic(name=self.topic, partition_indexes=numbers)]
        request = OffsetFetchRequest(group_id=self.group, topics=topics, groups=[], require_stable=True)
        self.ask(request, lambda response: self._fetched(mine, response), _FETCH_VERSION)

    def _fetched(self, mine: Sequence[TopicPartition], response: OffsetFetchResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            self.not_joined(response.error_code)
            return
        offsets = {
            (topic.name, row.partition_index): row.committed_offset
            for topic in response.topics
            for row in topic.partitions
        }
        self.begin_work({at: offsets[at] for at in mine})

    def heartbeat(self, coordinator: Address, turn: int) -> None:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        self.send(coordinator, request).addCallbacks(
            lambda response: self.heard(turn, response.error_code), lambda failure: self.not_heard(turn)
        )

    def stop_working(self) -> None:
        super().stop_working()
        self._shared_out = None
