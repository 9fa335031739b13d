"""A leader that has yielded a partition confirms nothing about it, until the controller lets it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import Access
from holdfast_log.protocol.messages.yield_leadership import (
    YieldedPartition,
    YieldedTopic,
    YieldLeadershipRequest,
)
from tests.broker.ownership.world import Owner, OwnershipWorld
from tests.broker.world import fetch_request, only_fetched
from tests.models.orders import leader_and_isr, partition_role


class YieldingWorld(OwnershipWorld):
    """Broker 1 leads "t", which has an owner, and "free", which has none."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.lead("t")
        self.lead("free")
        self.anna = self.owner("anna")
        assert self.anna.claim("t").error_code == ErrorCode.NONE
        assert self.anna.write("t") == ErrorCode.NONE

    def obey(self, *, is_yielded: bool, number: int = 1, leader_epoch: int = 0) -> None:
        """Carry out the controller's request for "t"."""
        row = YieldedPartition(partition=0, leader_epoch=leader_epoch, is_yielded=is_yielded)
        self.right.obey(
            YieldLeadershipRequest(
                controller_id=2,
                controller_epoch=1,
                broker_epoch=7,
                number=number,
                topics=[YieldedTopic(topic_id=self.topic_id("t"), partitions=[row])],
            )
        )

    def repeat_role(self, *, controller_epoch: int, broker_epoch: int) -> None:
        """Carry out a LeaderAndIsr that says again that this broker leads "t"."""
        state = partition_role(controller_epoch=controller_epoch)
        request = leader_and_isr(
            "t", self.topic_id("t"), [state], controller_epoch=controller_epoch, broker_epoch=broker_epoch
        )
        self.roles.apply_leader_and_isr(request)
        self.right.assigned(request, self.replicas.find)

    @property
    def confirms(self) -> bool:
        return self.anna.renew("t").error_code == ErrorCode.NONE


@pytest.fixture
def world(tmp_path: Path) -> YieldingWorld:
    return YieldingWorld(tmp_path)


def test_the_owner_is_detached_and_may_not_write(world: YieldingWorld) -> None:
    world.obey(is_yielded=True)
    assert world.anna.renew("t").error_code == ErrorCode.OWNERSHIP_DETACHED
    assert world.anna.write("t") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert _refused(world.anna, "t") == ErrorCode.NOT_LEADER_OR_FOLLOWER


def _refused(owner: Owner, topic: str) -> ErrorCode:
    """The error of a request to resume, which fails as a whole."""
    return ErrorCode(owner.client.call(owner.resume_request(topic)).error_code)


def test_a_renew_that_waits_is_answered(world: YieldingWorld) -> None:
    world.anna.renew("t")
    world.anna.ask(world.anna.renew_request("t", max_wait_ms=60_000))
    assert world.anna.client.answers() == []
    world.obey(is_yielded=True)
    (answer,) = world.anna.client.answers()
    assert answer.resources[0].error_code == ErrorCode.OWNERSHIP_DETACHED


def test_a_waiting_claim_is_sent_away(world: YieldingWorld) -> None:
    bert = world.owner("bert")
    bert.claim("t", -1, wait_timeout_ms=60_000)
    world.obey(is_yielded=True)
    assert bert.renew("t").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_claim_that_is_being_written_is_not_confirmed(world: YieldingWorld) -> None:
    bert = world.owner("bert")
    world.zookeeper.is_held = True
    bert.ask(bert.claim_request("t", 2))
    world.obey(is_yielded=True)
    world.zookeeper.release()
    (answer,) = bert.client.answers()
    assert answer.resources[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_single_reader_gets_nothing(world: YieldingWorld) -> None:
    reader = world.owner("carl", access=Access.READ)
    reader.claim("t")
    world.obey(is_yielded=True)
    fetched = only_fetched(reader.client.call(fetch_request(world.topic_id("t"))))
    assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_partitions_without_an_owner_are_served_as_before(world: YieldingWorld) -> None:
    world.obey(is_yielded=True)
    assert world.anna.write("free") == ErrorCode.NONE
    fetched = only_fetched(world.client().call(fetch_request(world.topic_id("t"))))
    assert fetched.error_code == ErrorCode.NONE


def test_the_controllers_word_lets_the_leader_confirm_again(world: YieldingWorld) -> None:
    world.obey(is_yielded=True)
    world.obey(is_yielded=False, number=2)
    assert world.confirms
    assert world.anna.write("t") == ErrorCode.NONE


@pytest.mark.parametrize("is_yielded", [True, False])
def test_an_older_word_that_comes_late_changes_nothing(world: YieldingWorld, is_yielded: bool) -> None:
    world.obey(is_yielded=is_yielded, number=2)
    world.obey(is_yielded=not is_yielded, number=1)
    assert world.confirms is not is_yielded


def test_in_a_newer_leader_epoch_the_leader_confirms(world: YieldingWorld) -> None:
    world.obey(is_yielded=True)
    world.lead("t", leader_epoch=1)
    assert world.anna.resume("t").error_code == ErrorCode.NONE
    assert world.confirms


@pytest.mark.parametrize(
    ("controller_epoch", "broker_epoch", "confirms"),
    [(1, 7, False), (2, 7, True), (1, 8, True)],
    ids=["the same controller and registration", "a newer controller", "a newer registration"],
)
def test_a_repeated_role_ends_only_what_can_no_longer_lead_to_a_move(
    world: YieldingWorld, controller_epoch: int, broker_epoch: int, confirms: bool
) -> None:
    world.obey(is_yielded=True)
    world.repeat_role(controller_epoch=controller_epoch, broker_epoch=broker_epoch)
    assert world.confirms is confirms


def test_a_broker_that_asks_for_other_leaders_in_its_place_confirms_nothing(world: YieldingWorld) -> None:
    world.right.hand_over()
    assert world.anna.renew("t").error_code == ErrorCode.OWNERSHIP_DETACHED
    assert world.anna.write("t") == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_resigns_for_a_damaged_log_confirms_nothing(world: YieldingWorld) -> None:
    """The controller may elect another leader as soon as this one has reported its log."""
    world.replicas.partition("t", 0).is_resigning = True
    assert not world.confirms
