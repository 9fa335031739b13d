"""Bugs of leaders that acknowledge and answer without ZooKeeper what no follower has proven."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast_log.broker.replication.fetch_sessions import FetchSessions
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.right_to_acknowledge import RightToAcknowledge
from holdfast_log.broker.shards.partition_log import PartitionLog
from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.ownership.claim import OwnershipClaim
from holdfast_log.clients.ownership.claim_requests import ResourceRequest
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.sim.mutation import Mutation, Patch


def _acknowledge_alone() -> Sequence[Patch]:
    refusal = RightToAcknowledge.refusal

    def mutant(self: RightToAcknowledge, partition: Partition, now_ms: int) -> BrokerError | None:
        role = partition.role
        if isinstance(role, Leadership) and role.is_alone:
            return None
        return refusal(self, partition, now_ms)

    return [
        (RightToAcknowledge, "refusal", mutant),
        (RightToAcknowledge, "acknowledges", lambda self, partition: True),
    ]


def _keep_writers() -> Sequence[Patch]:
    refusal = RightToAcknowledge.refusal

    def mutant(self: RightToAcknowledge, partition: Partition, now_ms: int) -> BrokerError | None:
        role = partition.role
        if isinstance(role, Leadership) and not role.is_alone:
            return None
        return refusal(self, partition, now_ms)

    return [(RightToAcknowledge, "refusal", mutant)]


def _count_fetches_by_arrival() -> Sequence[Patch]:
    def mutant(self: FetchSessions, key: TopicPartition, leader_epoch: int) -> dict[int, int]:
        return {
            each.session.reader.replica_id: each.session.used_ms
            for each in self._followers(key)
            if each.wanted.current_leader_epoch == leader_epoch
        }

    return [(FetchSessions, "asked_after_ms", mutant)]


def _count_fetches_of_any_epoch() -> Sequence[Patch]:
    def mutant(self: FetchSessions, key: TopicPartition, leader_epoch: int) -> dict[int, int]:
        return {each.session.reader.replica_id: each.session.asked_after_ms for each in self._followers(key)}

    return [(FetchSessions, "asked_after_ms", mutant)]


def _without_waited_ms(request: Callable[..., ResourceRequest]) -> Callable[..., ResourceRequest]:
    def mutant(self: OwnershipClaim, now_ms: int, *, is_alone: bool) -> ResourceRequest:
        return replace(request(self, now_ms, is_alone=is_alone), waited_ms=0)

    return mutant


RARE = (
    Mutation(
        "acknowledged-alone-without-lease",
        "a leader that is alone in sync acknowledges writes although another may have been elected uncleanly",
        _acknowledge_alone,
    ),
    Mutation(
        "writers-kept-without-followers",
        "a leader without its lease keeps its writers waiting after its followers have left it",
        _keep_writers,
    ),
    Mutation(
        "group-read-unproven",
        "a coordinator without its lease returns an offset although another may have taken the group over",
        lambda: [(PartitionLog, "is_current_since", lambda self, since_s: True)],
    ),
    Mutation(
        "own-look-up-believed",
        "a client asks a broker that refused it for the leader, and believes that it is still the leader",
        lambda: [(Metadata, "doubt", lambda self, node: self.renew())],
    ),
    Mutation(
        "place-of-replaced-broker-lost",
        "a waiter whose broker was replaced waits behind newcomers that found the next one sooner",
        lambda: [(OwnershipClaim, "request", _without_waited_ms(OwnershipClaim.request))],
    ),
    Mutation(
        "proof-by-earlier-fetch",
        "a fetch that a follower had sent before a read came proves that the leader led when it came",
        _count_fetches_by_arrival,
    ),
    Mutation(
        "proof-by-other-epoch",
        "a follower that fetches in another leader epoch proves that the leader still leads in its own",
        _count_fetches_of_any_epoch,
    ),
)
