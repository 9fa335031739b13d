"""Commits of consumers that own their partitions (own API): refused once another owner was granted them."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.ownership.records import Grant, Owner, OwnershipRecord, PartitionKey, encode_ownership
from coordinator.znodes.layout import OWNED_TOPICS
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.ownership import Access, LossReason
from tests.broker.groups.group_broker import GroupBroker, commit, commit_error, fetched
from tests.broker.world import Client
from tests.sim.mutants.access import LOST_OWNER_COMMITS
from tests.sim.mutation import mutated

GROUP = "index"
OWNERS = "indexers"


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    broker = GroupBroker(tmp_path)
    broker.make_offsets_topic()
    broker.assign("t")
    broker.zookeeper.znodes[OWNED_TOPICS] = (b"", 0)
    return broker


def grant(broker: GroupBroker, incarnation: int, reason: LossReason = LossReason.NONE) -> None:
    """Record the newest grant of t-0."""
    key = PartitionKey(broker.topic_id("t"), 0, "t")
    owner = Owner("owner", "client", "User:ANONYMOUS", "127.0.0.1", 10_000, Access.READ)
    newest = Grant(1, incarnation, owner, -1, since_ms=0)
    if reason is not LossReason.NONE:
        newest = newest.ended(reason, 1)
    for path, data in (
        (key.path.rpartition("/")[0], b""),
        (key.path, encode_ownership(OwnershipRecord(incarnation, {OWNERS: (newest,)}))),
    ):
        broker.zookeeper.znodes[path] = (data, 0)


def commit_as_owner(client: Client, offset: int, token: int, owner_group: str = OWNERS) -> ErrorCode:
    wanted = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="", owner_token=token
    )
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[wanted])],
        owner_group=owner_group,
    )
    return commit_error(client.call(request))


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


def test_other_consumers_commit_without_a_token(broker: GroupBroker) -> None:
    grant(broker, 7)
    assert commit(broker.client(), GROUP, 5) is ErrorCode.NONE


def test_a_lost_owner_that_is_let_commit_moves_the_offset_of_its_successor(broker: GroupBroker) -> None:
    """A check of the tests above: they catch this mutation."""
    grant(broker, 8)
    with mutated(LOST_OWNER_COMMITS):
        assert commit_as_owner(broker.client(), 9, 7) is ErrorCode.NONE
