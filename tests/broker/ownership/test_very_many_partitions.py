"""A leader of very many partitions asks for the records of all that are owned, in little work for each."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from twisted.internet.defer import Deferred

from holdfast_log.broker.ownership.decided import DecidedResources
from holdfast_log.coordinator.ownership.records import PartitionKey
from tests.hostile.test_decoding_work import calls_of
from tests.models.orders import TOPIC_ID

PARTITIONS = 5_000
CALLS_PER_PARTITION_MAX = 18
"""A call and what follows it takes 0.2 µs at most: those for all partitions take 18 ms."""


class Asked:
    """A store that notes what is read, and answers when the test says so."""

    def __init__(self) -> None:
        self.keys: list[PartitionKey] = []
        self.found: Deferred[Any] = Deferred()

    async def read_partitions(self, keys: Sequence[PartitionKey]) -> Any:
        self.keys += keys
        return await self.found


def test_the_work_for_each_of_very_many_partitions_is_little() -> None:
    store = Asked()
    decided = DecidedResources(
        cast(Any, SimpleNamespace(local_id=1)),
        cast(Any, SimpleNamespace(count_from=lambda transaction: None)),
        cast(Any, store),
        lambda group: None,
        cast(Any, None),
        lambda: None,
    )
    states = [SimpleNamespace(leader=1, leader_epoch=0, partition_index=index) for index in range(PARTITIONS)]
    topic = SimpleNamespace(topic_id=TOPIC_ID, topic_name="t", partition_states=states[1:])
    asked: list[Deferred[None]] = []
    request = cast(Any, SimpleNamespace(topic_states=[topic]))
    calls = calls_of(lambda: asked.append(decided.prepare(request)))
    assert [key.index for key in store.keys] == [*range(1, PARTITIONS), 0], (
        "the first one has the topic's owner"
    )
    assert calls <= CALLS_PER_PARTITION_MAX * PARTITIONS
    found = SimpleNamespace(incarnations_from=0, records=())
    calls = calls_of(lambda: store.found.callback(found))
    assert asked[0].called and calls <= CALLS_PER_PARTITION_MAX * PARTITIONS
    assert decided._topic_owners == {PartitionKey(UUID(int=1), index): None for index in range(1, PARTITIONS)}
