"""What clients hold by a right ends soon after the right: waiting fetches, sessions, ownership, claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.ownership.revocation import PER_TURN
from holdfast_log.broker.rechecks import DELAY_S
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.ownership import IF_FREE, NO_PARTITION, Access
from holdfast_log.protocol.messages.ownership_sight import (
    DescribeOwnersRequest,
    ForceReleaseRequest,
    ResourceToRelease,
)
from tests.broker.ownership.world import OwnershipWorld
from tests.broker.world import Client, fetch_request, only_fetched, produce_request
from tests.models.batches import batch
from tests.models.rules import Rules

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, GROUP = AclResource.TOPIC, AclResource.GROUP
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def rules() -> Rules:
    return Rules(set())


def judged_world(path: Path, rules: Rules) -> OwnershipWorld:
    world = OwnershipWorld(path, authorizer=rules)
    for topic in ("t", "u"):
        world.lead(topic)
    return world


@pytest.fixture
def world(tmp_path: Path, rules: Rules) -> OwnershipWorld:
    return judged_world(tmp_path, rules)


def wait_for(world: OwnershipWorld, **session: Any) -> Client:
    """A client with a fetch that waits for a record of t."""
    client = world.stranger()
    request = fetch_request(world.topic_id("t"), max_wait_ms=60_000)
    for name, value in session.items():
        setattr(request, name, value)
    client.ask(request)
    assert client.answers() == []
    return client


def write(world: OwnershipWorld) -> None:
    world.client().call(produce_request("t", batch(b"secret")))


class TestFetches:
    def test_a_waiting_fetch_ends_with_the_error(self, world: OwnershipWorld, rules: Rules) -> None:
        client = wait_for(world)
        rules.change({(READ, TOPIC)}, {"t"})
        world.clock.advance(DELAY_S)
        answers = client.answers()
        assert [only_fetched(answer).error_code for answer in answers] == [DENIED]

    def test_records_that_come_before_the_check_are_not_given(
        self, world: OwnershipWorld, rules: Rules
    ) -> None:
        client = wait_for(world)
        rules.change({(READ, TOPIC)}, {"t"})
        write(world)
        (answer,) = client.answers()
        assert (only_fetched(answer).error_code, only_fetched(answer).records) == (DENIED, b"")

    def test_a_fetch_that_is_answered_at_once_is_judged_by_the_rules_of_the_moment(
        self, world: OwnershipWorld, rules: Rules
    ) -> None:
        write(world)
        client, request = world.stranger(), fetch_request(world.topic_id("t"), max_wait_ms=60_000)
        for denied, code in ((set(), ErrorCode.NONE), ({(READ, TOPIC)}, DENIED), (set(), ErrorCode.NONE)):
            rules.change(denied, {"t"})
            found = only_fetched(client.call(request))
            assert (found.error_code, bool(found.records)) == (code, code is ErrorCode.NONE)

    def test_another_right_that_ends_disturbs_no_reader(self, world: OwnershipWorld, rules: Rules) -> None:
        client = wait_for(world)
        rules.change({(READ, TOPIC)}, {"u"})
        world.clock.advance(DELAY_S)
        (answer,) = client.answers()
        assert only_fetched(answer).error_code == ErrorCode.NONE
        assert only_fetched(answer).records == b""

    def test_a_session_tells_of_a_partition_that_nothing_has_stirred(
        self, world: OwnershipWorld, rules: Rules
    ) -> None:
        client = world.stranger()
        topics = [fetch_request(world.topic_id(name)).topics[0] for name in ("t", "u")]
        first = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics, session_epoch=0)
        opened = client.call(first)
        assert opened.session_id
        session = {"session_id": opened.session_id, "max_wait_ms": 60_000}
        client.ask(FetchRequest(min_bytes=1, max_bytes=1 << 20, topics=[], session_epoch=1, **session))
        assert client.answers() == []
        rules.change({(READ, TOPIC)}, {"t"})
        world.clock.advance(DELAY_S)
        (answer,) = client.answers()
        assert answer.session_id == opened.session_id and answer.responses
        assert only_fetched(answer).error_code == DENIED
        assert answer.responses[0].topic_id == world.topic_id("t")

    def test_many_readers_are_checked_a_few_in_a_turn(self, world: OwnershipWorld, rules: Rules) -> None:
        clients = [wait_for(world) for _ in range(PER_TURN + 1)]
        rules.denied = {(READ, TOPIC)}
        revocation = world.ownership.revocation
        assert revocation is not None
        revocation._recheck._begin()
        assert sum(len(client.answers()) for client in clients) == PER_TURN
        world.clock.advance(0)
        assert sum(len(client.answers()) for client in clients) == 1


class TestOwnership:
    @pytest.mark.parametrize(
        ("access", "right"),
        [(Access.WRITE, (WRITE, TOPIC)), (Access.READ, (READ, TOPIC)), (Access.READ, (READ, GROUP))],
    )
    def test_an_owner_without_the_right_owns_no_more(
        self, world: OwnershipWorld, rules: Rules, access: Access, right: tuple[AclOperation, AclResource]
    ) -> None:
        anna = world.judged_owner("anna", access=access)
        assert anna.claim("t").error_code == ErrorCode.NONE
        rules.change({right})
        world.clock.advance(DELAY_S)
        assert anna.client.connection.is_closed
        rules.change(set())
        anna.client = world.stranger()
        assert anna.resume("t").error_code != ErrorCode.NONE
        assert world.owner("ben", access=access).claim("t", IF_FREE).error_code == ErrorCode.NONE

    def test_an_owner_with_the_right_and_a_brokers_stay(self, world: OwnershipWorld, rules: Rules) -> None:
        anna, ben = world.judged_owner("anna"), world.owner("ben")
        anna.claim("t")
        ben.claim("u")
        rules.change({(READ, TOPIC)})
        world.clock.advance(DELAY_S)
        assert not anna.client.connection.is_closed
        rules.change({(WRITE, TOPIC)}, {"u"})
        world.clock.advance(DELAY_S)
        assert not ben.client.connection.is_closed
        assert anna.write("t") == ErrorCode.NONE

    def test_an_owner_that_was_away_cannot_resume_without_the_right(
        self, world: OwnershipWorld, rules: Rules
    ) -> None:
        anna = world.judged_owner("anna")
        anna.claim("t")
        anna.client.connection.close("the network")
        rules.denied = {(WRITE, TOPIC)}
        anna.client = world.stranger()
        assert anna.resume("t").error_code == DENIED
        rules.denied = set()
        assert anna.resume("t").error_code == ErrorCode.NONE

    def test_a_claim_that_waits_ends_with_its_connection(self, world: OwnershipWorld, rules: Rules) -> None:
        world.owner("ben").claim("t")
        anna = world.judged_owner("anna")
        assert anna.claim("t", IF_FREE, wait_timeout_ms=60_000).position == 1
        rules.change({(WRITE, TOPIC)})
        world.clock.advance(DELAY_S)
        assert anna.client.connection.is_closed

    def test_a_claim_needs_the_right(self, world: OwnershipWorld, rules: Rules) -> None:
        rules.change({(WRITE, TOPIC)})
        assert world.judged_owner("anna").claim("t").error_code == DENIED
        assert world.judged_owner("ben", access=Access.READ).claim("t").error_code == ErrorCode.NONE


class TestSight:
    """Who may see owners, and who may take from them."""

    def described(self, client: Client) -> set[tuple[str, int]]:
        resources = client.call(DescribeOwnersRequest(include_history=False)).resources
        return {(each.name, each.partition) for each in resources}

    def test_owners_are_seen_of_what_the_client_may_describe(
        self, world: OwnershipWorld, rules: Rules
    ) -> None:
        anna = world.owner("anna")
        for topic in ("t", "u"):
            anna.claim(topic)
        world.lead(OFFSETS_TOPIC)
        name = world.owner("ben", "other", Access.NONE)
        assert name.claim("leader", 1, NO_PARTITION).error_code == ErrorCode.NONE
        everything = {("t", 0), ("u", 0), ("leader", NO_PARTITION)}
        assert self.described(world.stranger()) == everything
        rules.denied, rules.named = {(AclOperation.DESCRIBE, TOPIC)}, {"u"}
        assert self.described(world.stranger()) == everything - {("u", 0)}
        rules.denied, rules.named = {(AclOperation.DESCRIBE, GROUP)}, {"other"}
        assert self.described(world.stranger()) == everything - {("leader", NO_PARTITION)}

    def test_only_what_the_client_may_alter_is_taken(self, world: OwnershipWorld, rules: Rules) -> None:
        owners = {topic: world.owner(f"owner-{topic}") for topic in ("t", "u")}
        for topic, owner in owners.items():
            owner.claim(topic)
        rules.denied, rules.named = {(AclOperation.ALTER, TOPIC)}, {"u"}
        resources = [ResourceToRelease(name=topic, partition=0, generation=-1) for topic in ("u", "t")]
        request = ForceReleaseRequest(group="app", resources=resources, timeout_ms=1000, comment="drill")
        answer = world.stranger().call(request)
        assert [each.error_code for each in answer.resources] == [DENIED, ErrorCode.NONE]
        assert [owners[topic].client.connection.is_closed for topic in ("u", "t")] == [False, True]

    def test_a_claim_of_several_is_all_or_none(self, world: OwnershipWorld, rules: Rules) -> None:
        rules.denied, rules.named = {(WRITE, TOPIC)}, {"u"}
        anna = world.judged_owner("anna")
        request = anna.claim_request("t")
        request.resources += anna.claim_request("u").resources
        codes = [each.error_code for each in anna.client.call(request).resources]
        assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, DENIED]
        assert self.described(world.client()) == set()
