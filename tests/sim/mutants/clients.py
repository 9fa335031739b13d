"""Known bugs of clients that no campaign reaches: each is caught by a fixed scenario."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast_log.clients.connection.cluster_view import NO_NODE, Metadata
from holdfast_log.clients.groups.partitions_beside import PartitionsBeside
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.protocol.messages.metadata import MetadataResponseTopic
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.sim.mutation import Mutation, Patch


def _wait_for_an_unknown_leader() -> Sequence[Patch]:
    update = Metadata._update_topic

    def mutant(self: Metadata, name: str, row: MetadataResponseTopic) -> None:
        was_stale = self._is_stale
        update(self, name, row)
        if all(each.leader_id != NO_NODE for each in row.partitions):
            self._is_stale = was_stale

    return [(Metadata, "_update_topic", mutant)]


def _keep_who_gave_up() -> Sequence[Patch]:
    def mutant(self: Batch, callback: Callable[[], object]) -> None:
        pass

    return [(Batch, "forget", mutant)]


def _begin_before_it_is_revoked() -> Sequence[Patch]:
    def mutant(self: PartitionsBeside, partition: TopicPartition, owned: Collection[TopicPartition]) -> bool:
        return True

    return [(PartitionsBeside, "add", mutant)]


RARE = (
    Mutation(
        "unknown-leader-awaited",
        "a client does not ask again for a leader whose address the answer did not have",
        _wait_for_an_unknown_leader,
    ),
    Mutation(
        "waiters-kept",
        "a batch keeps the callbacks of those that no longer wait for its outcome",
        _keep_who_gave_up,
    ),
    Mutation(
        "partition-beside-revoked",
        "a consumer loses a partition that it reads itself when its group takes the topic back",
        _begin_before_it_is_revoked,
    ),
)
