"""Commits of consumers that own their partitions (own API): refused once another owner was granted them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.coordinator.ownership.records import (
    Grant,
    Owner,
    OwnershipRecord,
    PartitionKey,
    encode_ownership,
)
from holdfast_log.coordinator.ownership.store import FoundRecords
from holdfast_log.coordinator.znodes.layout import OWNED_TOPICS
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast_log.protocol.messages.ownership import Access, LossReason
from tests.broker.groups.group_broker import GroupBroker, commit, commit_error, fetched
from tests.broker.world import Client

GROUP = "index"
OWNERS = "indexers"


def coordinator(path: Path, **how: Any) -> GroupBroker:
    """A broker that coordinates groups, with a topic whose partition may be owned."""
    broker = GroupBroker(path, **how)
    broker.make_offsets_topic()
    broker.assign("t")
    broker.zookeeper.znodes[OWNED_TOPICS] = (b"", 0)
    return broker


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return coordinator(tmp_path)


def grant(
    broker: GroupBroker, incarnation: int, reason: LossReason = LossReason.NONE, index: int = 0
) -> None:
    """Record the newest grant of a partition of t."""
    key = PartitionKey(broker.topic_id("t"), index, "t")
    owner = Owner("owner", "client", "User:ANONYMOUS", "127.0.0.1", 10_000, Access.READ)
    newest = Grant(1, incarnation, owner, -1, since_ms=0)
    if reason is not LossReason.NONE:
        newest = newest.ended(reason, 1)
    for path, data in (
        (key.path.rpartition("/")[0], b""),
        (key.path, encode_ownership(OwnershipRecord(incarnation, {OWNERS: (newest,)}))),
    ):
        broker.zookeeper.znodes[path] = (data, 0)


def owners_commit(offset: int, token: int, owner_group: str = OWNERS) -> OffsetCommitRequest:
    wanted = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="", owner_token=token
    )
    return OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[wanted])],
        owner_group=owner_group,
    )


def commit_as_owner(client: Client, offset: int, token: int, owner_group: str = OWNERS) -> ErrorCode:
    return commit_error(client.call(owners_commit(offset, token, owner_group)))


def read_slowly_in(broker: GroupBroker, patches: pytest.MonkeyPatch) -> list[Deferred[None]]:
    """Let the broker read grants slowly. Returns, for each time that it reads them, what the result then
    waits for."""
    waiting: list[Deferred[None]] = []
    read = broker.ownership_store.read_partitions

    async def read_slowly(keys: Sequence[PartitionKey]) -> FoundRecords:
        found = await read(keys)
        waiting.append(Deferred())
        await waiting[-1]
        return found

    patches.setattr(broker.ownership_store, "read_partitions", read_slowly)
    return waiting


@pytest.fixture
def slow_check(broker: GroupBroker, monkeypatch: pytest.MonkeyPatch) -> list[Deferred[None]]:
    return read_slowly_in(broker, monkeypatch)


def test_the_owner_of_a_partition_commits(broker: GroupBroker) -> None:
    grant(broker, 7)
    client = broker.client()
    assert commit_as_owner(client, 5, 7) is ErrorCode.NONE
    assert fetched(client, GROUP)[0] == 5


def test_an_owner_that_has_lost_its_partition_commits_nothing(broker: GroupBroker) -> None:
    grant(broker, 7)
    client = broker.client()
    assert commit_as_owner(client, 5, 7) is ErrorCode.NONE
    grant(broker, 8)
    assert commit_as_owner(client, 9, 7) is ErrorCode.OWNERSHIP_FENCED
    assert fetched(client, GROUP)[0] == 5
    assert commit_as_owner(client, 6, 8) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("reason", "answer"),
    [
        (LossReason.DISCONNECTED, ErrorCode.NONE),
        (LossReason.SESSION_TIMED_OUT, ErrorCode.NONE),
        (LossReason.RELEASED, ErrorCode.OWNERSHIP_FENCED),
        (LossReason.FORCED, ErrorCode.OWNERSHIP_FENCED),
    ],
)
def test_an_owner_commits_while_it_may_resume(
    broker: GroupBroker, reason: LossReason, answer: ErrorCode
) -> None:
    grant(broker, 7, reason)
    assert commit_as_owner(broker.client(), 5, 7) is answer


def test_a_token_without_a_grant_is_refused(broker: GroupBroker) -> None:
    assert commit_as_owner(broker.client(), 5, 7) is ErrorCode.OWNERSHIP_FENCED
    grant(broker, 7)
    assert commit_as_owner(broker.client(), 5, 7, "other owners") is ErrorCode.OWNERSHIP_FENCED


def test_a_commit_under_check_does_not_replace_an_offset_that_the_next_owner_has_read(
    broker: GroupBroker, slow_check: list[Deferred[None]]
) -> None:
    """Otherwise a third owner would begin behind records that the second has handled."""
    grant(broker, 7)
    client, successor = broker.client(), broker.client()
    client.ask(owners_commit(5, 7))
    grant(broker, 8)
    assert fetched(successor, GROUP)[0] == -1

    slow_check[0].callback(None)
    assert client.answers() == [] and len(slow_check) == 2
    slow_check[1].callback(None)

    (answer,) = client.answers()
    assert commit_error(answer) is ErrorCode.OWNERSHIP_FENCED
    assert fetched(successor, GROUP)[0] == -1


def test_a_commit_under_check_is_checked_once_if_only_other_groups_are_read(
    broker: GroupBroker, slow_check: list[Deferred[None]]
) -> None:
    grant(broker, 7)
    client, other = broker.client(), broker.client()
    client.ask(owners_commit(5, 7))
    assert fetched(other, "another group")[0] == -1

    slow_check[0].callback(None)

    (answer,) = client.answers()
    assert commit_error(answer) is ErrorCode.NONE and len(slow_check) == 1


def test_other_consumers_commit_without_a_token(broker: GroupBroker) -> None:
    grant(broker, 7)
    assert commit(broker.client(), GROUP, 5) is ErrorCode.NONE
