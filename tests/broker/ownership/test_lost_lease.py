"""A broker that has lost its lease confirms, grants and serves nothing that has an owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.log.disk import OsFile
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import Access
from tests.broker.ownership.world import Owner, OwnershipWorld
from tests.broker.world import fetch_request, only_fetched


def leading_world(path: Path) -> OwnershipWorld:
    world = OwnershipWorld(path)
    world.lead("t")
    return world


@pytest.fixture
def world(tmp_path: Path) -> OwnershipWorld:
    return leading_world(tmp_path)


@pytest.fixture
def owner(world: OwnershipWorld) -> Owner:
    owner = world.owner("anna")
    assert owner.claim("t").error_code == ErrorCode.NONE
    assert owner.write("t") == ErrorCode.NONE
    return owner


def test_an_owner_is_detached_until_the_broker_holds_its_lease_again(
    world: OwnershipWorld, owner: Owner
) -> None:
    world.holds_lease = False
    assert owner.renew("t").error_code == ErrorCode.OWNERSHIP_DETACHED
    resumed = owner.client.call(owner.resume_request("t"))
    assert resumed.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.holds_lease = True
    assert owner.renew("t").error_code == ErrorCode.NONE


def test_a_renew_that_waits_is_answered_when_the_lease_ends(world: OwnershipWorld, owner: Owner) -> None:
    owner.renew("t")
    owner.ask(owner.renew_request("t", max_wait_ms=60_000))
    assert owner.client.answers() == []
    world.holds_lease = False
    world.right.lease_changed()
    (answer,) = owner.client.answers()
    assert answer.resources[0].error_code == ErrorCode.OWNERSHIP_DETACHED


def test_a_waiting_claim_is_sent_away(world: OwnershipWorld, owner: Owner) -> None:
    bert = world.owner("bert")
    bert.claim("t", -1, wait_timeout_ms=60_000)
    world.holds_lease = False
    assert bert.renew("t").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_owner_cannot_release_until_the_broker_holds_its_lease_again(
    world: OwnershipWorld, owner: Owner
) -> None:
    world.holds_lease = False
    refused = owner.client.call(owner.release_request("t"))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.holds_lease = True
    (standing,) = owner.client.call(owner.release_request("t")).resources
    assert standing.error_code == ErrorCode.NONE


def test_neither_the_owner_nor_a_stranger_can_write(world: OwnershipWorld, owner: Owner) -> None:
    """Who owns the partition now is unknown here, so a stranger is not refused for good either."""
    world.holds_lease = False
    assert owner.write("t") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.owner("bert").write("t") == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_single_reader_gets_nothing(world: OwnershipWorld) -> None:
    reader = world.owner("anna", access=Access.READ)
    reader.claim("t")
    world.holds_lease = False
    fetched = only_fetched(reader.client.call(fetch_request(world.topic_id("t"))))
    assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_that_come_late_from_the_device_are_not_given_to_a_former_reader(
    world: OwnershipWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.owner("writer").write("t")
    reader = world.owner("anna", access=Access.READ)
    reader.claim("t")
    monkeypatch.setattr(OsFile, "is_cached", lambda self, size, position: False)
    world.workers.is_held = True
    reader.ask(fetch_request(world.topic_id("t")))
    assert reader.client.answers() == []
    world.holds_lease = False
    world.workers.release()
    (answer,) = reader.client.answers()
    assert only_fetched(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
