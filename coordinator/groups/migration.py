"""Changes of a group with members between the classic protocol and that of KIP-848, while its members read.

Upgrade: a member that sends ConsumerGroupHeartbeat joins a classic group of consumers. The group becomes a
consumer group; its classic members stay in it (consumer_classic.py), with the partitions that they have, and
learn from their next heartbeats that the group rebalances. Downgrade: the last member of the newer protocol
is gone. The group becomes a classic one that rebalances. Either is one batch of records, so a new coordinator
has the group either before or after it.
"""

from __future__ import annotations

from holdfast_log.coordinator.groups.classic_group import ClassicGroup, ClassicMember
from holdfast_log.coordinator.groups.classic_rebalance import ClassicRebalancer
from holdfast_log.coordinator.groups.consumer_assignment import CurrentAssignment, Partitions
from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from holdfast_log.coordinator.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE, encode_assignment
from holdfast_log.coordinator.groups.consumer_rebalance import ConsumerRebalancer, MemberRefused
from holdfast_log.coordinator.groups.consumer_records import ClassicMetadata, ConsumerMeta
from holdfast_log.coordinator.groups.consumer_topics import ClusterTopics, partitions_named
from holdfast_log.coordinator.groups.effects import ShardResult
from holdfast_log.coordinator.groups.records import group_record
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.states import GroupState
from holdfast_log.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    flat,
)
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.schema import MalformedMessage


class Migration:
    """Changes groups of one shard from one protocol to the other, as `group.consumer.migration.policy`
    allows."""

    def __init__(
        self,
        config: GroupSettings,
        classic: ClassicRebalancer,
        consumers: ConsumerRebalancer,
        cluster: ClusterTopics,
    ) -> None:
        self._config = config
        self._classic = classic
        self._consumers = consumers
        self._cluster = cluster

    def upgraded(self, group: ClassicGroup) -> ConsumerGroup:
        """The consumer group that a classic group becomes, which is left as it is. Raises MemberRefused if it
        may not or cannot become one."""
        if group.state is GroupState.EMPTY:
            return ConsumerGroup(group.group_id)
        policy = self._config.consumer_migration_policy
        if not policy.allows_upgrade:
            raise _refusal(
                f"the group has classic members, and group.consumer.migration.policy={policy.value}"
            )
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _refusal("the group has members that are not consumers")
        if len(group.members) > self._config.consumer_max_size:
            limit = self._config.consumer_max_size
            raise _refusal(f"the group has more than group.consumer.max.size={limit} members")
        try:
            return upgraded(group, self._cluster)
        except MalformedMessage as error:
            raise _refusal(f"a member has sent what is no subscription of a consumer: {error}") from None

    def upgrade(
        self, group: ClassicGroup, successor: ConsumerGroup, result: ShardResult, now_ms: int
    ) -> None:
        """Replace a classic group by its successor, whose records are in `result`. Members that wait for the
        end of a rebalance are told that another has begun."""
        for member in group.members.values():
            self._classic.answer_waiting(result, member, group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._classic.forget_timers(group)
        for consumer in successor.members.values():
            self._consumers.keep_alive(successor, consumer, now_ms)
        if group.durable is not None:
            result.groups_before[group.group_id] = group.durable
            result.records.insert(0, group_record(group.group_id, None))

    def must_downgrade(self, group: ConsumerGroup) -> bool:
        """Whether all members use the classic protocol, and the group may become a classic one."""
        return (
            self._config.consumer_migration_policy.allows_downgrade
            and 0 < len(group.members) <= self._config.max_size
            and all(member.meta.classic is not None for member in group.members.values())
        )

    def downgrade(self, group: ConsumerGroup, result: ShardResult, now_ms: int) -> ClassicGroup:
        """Replace a consumer group by the classic group that it becomes, and let that rebalance."""
        successor = downgraded(group, now_ms)
        self._consumers.delete(group, result)
        self._classic.persist(successor, result)
        for member in successor.members.values():
            self._classic.keep_alive(successor, member, now_ms)
        self._classic.prepare(successor, result, now_ms)
        return successor


def upgraded(group: ClassicGroup, cluster: ClusterTopics) -> ConsumerGroup:
    """The consumer group that a classic group with members becomes. Raises MalformedMessage.

    A member whose first JoinGroup has not been answered is left out: it joins the new group instead. Each
    other one keeps its generation as its epoch.
    """
    successor = ConsumerGroup(group.group_id, group.generation, group.generation)
    for member in group.members.values():
        if member.is_new:
            continue
        subscription = decode_subscription(member.protocols[0][1])
        has = frozenset(
            each for each in _had(group, member, subscription, cluster) if each not in successor.holders
        )
        meta = ConsumerMeta(
            member.instance_id,
            subscription.rack_id,
            member.client_id,
            member.client_host,
            tuple(sorted(set(subscription.topics))),
            "",
            member.rebalance_timeout_ms,
            "",
            ClassicMetadata(member.session_timeout_ms, member.protocols),
        )
        consumer = ConsumerMember(member.member_id, meta, has)
        successor.add(consumer)
        successor.give(consumer, CurrentAssignment(group.generation, group.generation, assigned=has))
    return successor


def _had(
    group: ClassicGroup, member: ClassicMember, subscription: Subscription, cluster: ClusterTopics
) -> Partitions:
    """What a member may be reading. Between the join phase and the new assignments that is what it has kept,
    by the words of its JoinGroup."""
    had = decode_assignment(member.assignment)
    if not had and group.state is not GroupState.STABLE:
        had = flat(subscription.owned_partitions)
    return partitions_named(cluster, had)


def downgraded(group: ConsumerGroup, now_ms: int) -> ClassicGroup:
    """The classic group that a consumer group without members of the newer protocol becomes.

    Its generation is the newest in which a member is: members in it are told to join again, and may commit
    what they have read. Those that are behind have lost their partitions. It has no leader: by this a
    coordinator that restores it knows that it has to rebalance.
    """
    generation = max(member.current.epoch for member in group.members.values())
    successor = ClassicGroup(group.group_id, GroupState.STABLE, now_ms, generation=generation)
    for member in group.members.values():
        meta, classic = member.meta, member.meta.classic
        assert classic is not None, "a member of the newer protocol cannot be in a classic group"
        successor.add(
            ClassicMember(
                member.member_id,
                meta.instance_id,
                meta.client_id,
                meta.client_host,
                meta.rebalance_timeout_ms,
                classic.session_timeout_ms,
                CONSUMER_PROTOCOL_TYPE,
                classic.protocols,
                assignment=encode_assignment(group.named(member.current.held)),
            )
        )
    successor.leader_id = None
    successor.protocol_name = successor.choose_protocol()
    successor.topics = successor.subscribed_topics()
    return successor


def _refusal(message: str) -> MemberRefused:
    return MemberRefused(ErrorCode.GROUP_ID_NOT_FOUND, message)
