"""A broker under the probe with topics, partitions, groups and committed offsets, for hostile requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.list_groups import ListGroupsRequest
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.hostile.attack import Target
from tests.hostile.generator import World
from tests.hostile.probe import Turns
from tests.integration.raw_socket import RawSocket

MANY = "many"
_COMMITTED_MAX = 5000
_PROPERTIES = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "zookeeper.session.timeout.ms": "60000",
}
"""On a busy machine a broker, or ZooKeeper, may not run for seconds: that is no attack."""


@contextmanager
def probed_broker(
    directory: Path, zookeeper_connect: str, properties: Mapping[str, str] | None = None
) -> Iterator[Target]:
    """A running broker under the probe."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "turns"
    turns = Turns(path)
    broker = BackgroundBroker(
        directory / "broker",
        broker_id=1,
        zookeeper_connect=zookeeper_connect,
        properties=_PROPERTIES | {**(properties or {})},
        python_arguments=("-m", "tests.hostile.probe", str(path)),
    )
    broker.start()
    try:
        broker.wait_ready()
        yield Target(broker, turns)
    finally:
        broker.stop()


@dataclass(frozen=True, slots=True)
class Furniture:
    """How much there is in the cluster: partitions of one topic, topics of one partition, and groups."""

    partitions: int
    topics: int
    groups: int


def furnish(broker: BackgroundBroker, furniture: Furniture) -> World:
    """Create a topic of many partitions, topics of one, and groups with committed offsets, the first with one
    for every partition, whose names are also those of transactional ids; those of them that do not exist."""
    partitions, topics, groups = furniture.partitions, furniture.topics, furniture.groups
    with RawSocket(broker.port) as socket:
        _create(socket, [(MANY, partitions)])
        names = [f"topic-{number}" for number in range(topics)]
        for start in range(0, topics, 50):
            _create(socket, [(name, 1) for name in names[start : start + 50]])
        group_ids = [f"group-{number}" for number in range(groups)]
        while socket.call(FindCoordinatorRequest(key="group-0"), 0).error_code:
            pass
        for number, group_id in enumerate(group_ids):
            _commit(socket, group_id, min(partitions, 50 if number else _COMMITTED_MAX))
        producer_ids = [_producer_id(socket, group_id) for group_id in group_ids]
        known = socket.call(MetadataRequest(topics=None), 12).topics
    ids = {topic.name: topic.topic_id for topic in known}
    return World(
        broker.broker_id, [MANY, *names], [ids[name] for name in [MANY, *names]], group_ids, producer_ids[0]
    )


def is_furnished(broker: BackgroundBroker, world: World) -> bool:
    """Whether everything of `world` is still there: some requests delete."""
    with RawSocket(broker.port) as socket:
        topics = socket.call(MetadataRequest(topics=None), 12).topics
        groups = socket.call(ListGroupsRequest(), 4).groups
    return {topic.topic_id for topic in topics}.issuperset(world.topic_ids) and {
        group.group_id for group in groups
    }.issuperset(world.groups)


def _create(socket: RawSocket, topics: list[tuple[str, int]]) -> None:
    rows = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        for name, count in topics
    ]
    while True:
        results = socket.call(CreateTopicsRequest(topics=rows, timeout_ms=60_000), 5).topics
        failed = {each.name for each in results if each.error_code not in (0, 36)}
        rows = [row for row in rows if row.name in failed]
        if not rows:
            return


def _commit(socket: RawSocket, group_id: str, partitions: int) -> None:
    rows = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=0, committed_metadata="m" * 100)
        for index in range(partitions)
    ]
    topics = [OffsetCommitRequestTopic(name=MANY, partitions=rows)]
    request = OffsetCommitRequest(group_id=group_id, member_id="", topics=topics)
    while socket.call(request, 6).topics[0].partitions[0].error_code:
        pass


def _producer_id(socket: RawSocket, transactional_id: str) -> int:
    """Have a transactional id known. Returns its producer id."""
    while socket.call(FindCoordinatorRequest(key=transactional_id, key_type=1), 3).error_code:
        pass
    wanted = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    while (answer := socket.call(wanted, 4)).error_code:
        pass
    return answer.producer_id
