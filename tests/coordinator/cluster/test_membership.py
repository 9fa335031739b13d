"""Registration and candidacy on a real ZooKeeper: conflicts, races, lost connections, expired sessions."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from twisted.internet.defer import DeferredList, ensureDeferred

from holdfast_log.coordinator.cluster.identity import cluster_id, generate_broker_id, prepare_layout
from holdfast_log.coordinator.cluster.membership import BrokerIdInUse
from holdfast_log.coordinator.controller.events import TopicCreation
from holdfast_log.coordinator.znodes.brokers import decode_broker
from holdfast_log.coordinator.znodes.controller import CONTROLLER
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.members import Members, broker_info, cluster
from tests.coordinator.zookeeper.test_zookeeper import connected, end_session
from tests.reactor import in_thread, on_reactor, until
from tests.zookeeper import ZooKeeperProcess


@on_reactor
async def test_the_broker_epoch_is_the_id_of_the_registering_transaction(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        one = members.members[1]
        data, stat = await one.zookeeper.session.get("/brokers/ids/1")
        assert decode_broker(1, data) == broker_info(1)
        assert stat.czxid == one.membership.broker_epoch
        assert stat.ephemeral_owner == one.zookeeper.session.session_id


@on_reactor
async def test_an_expired_session_is_followed_by_a_new_epoch(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        one = members.members[1]
        before = one.membership.broker_epoch
        await in_thread(end_session, one.zookeeper.session, zookeeper)
        await until(lambda: one.membership.broker_epoch > before)
        # The broker must stop acknowledging before its registration is lost.
        assert one.events[:2] == ["registered", "suspended"]
        assert one.events[-2:] == ["expired", "registered"]
        assert one.events.count("expired") == 1
        data, stat = await one.zookeeper.session.get("/brokers/ids/1")
        assert stat.czxid == one.membership.broker_epoch
        # The process keeps its start epoch over all registrations.
        assert decode_broker(1, data).start_epoch == before
        await in_thread(end_session, one.zookeeper.session, zookeeper)
        await until(lambda: one.membership.broker_epoch > stat.czxid)
        data, _ = await one.zookeeper.session.get("/brokers/ids/1")
        assert decode_broker(1, data).start_epoch == before


@on_reactor
async def test_a_registration_removed_by_hand_is_followed_by_a_new_epoch(zookeeper: str) -> None:
    async with cluster(zookeeper, 1, 2) as members:
        one, two = members.members[1], members.members[2]
        before, term = one.membership.broker_epoch, one.candidacy.term
        assert term is not None
        await two.zookeeper.session.delete("/brokers/ids/1")
        await until(lambda: one.membership.broker_epoch > before)
        assert one.events == ["registered", "expired", "registered"]
        assert one.membership.is_connected
        data, stat = await one.zookeeper.session.get("/brokers/ids/1")
        assert stat.czxid == one.membership.broker_epoch
        assert stat.ephemeral_owner == one.zookeeper.session.session_id
        # The process is the same, and its session still held /controller. A new term must begin nevertheless.
        assert decode_broker(1, data).start_epoch == before
        terms = [member.candidacy for member in members.members.values()]
        await until(lambda: any(each.term is not None and each.term.epoch > term.epoch for each in terms))
        await until(lambda: sum(member.controller.is_active for member in members.members.values()) == 1)
        # A second deletion is noticed too.
        await two.zookeeper.session.delete("/brokers/ids/1")
        await until(lambda: one.membership.broker_epoch > stat.czxid)


@on_reactor
async def test_a_registration_overwritten_by_hand_is_restored(zookeeper: str) -> None:
    async with cluster(zookeeper, 1, 2) as members:
        one, two = members.members[1], members.members[2]
        await two.zookeeper.session.set("/brokers/ids/1", b"{")
        while (await two.zookeeper.session.get("/brokers/ids/1"))[0] == b"{":
            pass
        data, stat = await two.zookeeper.session.get("/brokers/ids/1")
        assert decode_broker(1, data) == broker_info(1)
        assert stat.czxid == one.membership.broker_epoch
        assert one.events == ["registered"]


@on_reactor
async def test_a_second_broker_with_the_same_id_is_refused(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        second = members.make(1, conflict_timeout_ms=200)
        second.zookeeper.start()
        with pytest.raises(BrokerIdInUse, match="broker id 1 belongs to a live broker"):
            await second.membership.start()
        await second.zookeeper.close()
        assert members.members[1].events == ["registered"]


@on_reactor
async def test_a_restarted_broker_waits_until_its_old_session_expires(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        old = members.members.pop(1)
        restarted = members.make(1)
        members.members[1] = restarted
        restarted.zookeeper.start()
        registered = restarted.membership.start()
        # Once the second broker has found the old znode, remove it as an expiring session would.
        await restarted.zookeeper.session.exists("/brokers/ids/1")
        await old.zookeeper.close()
        assert await registered > old.membership.broker_epoch


@on_reactor
async def test_a_broker_that_cannot_register_again_notifies_its_listeners(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        one = members.members[1]
        usurper = members.make(1)
        usurper.zookeeper.start()
        waiting = usurper.membership.start()
        await usurper.zookeeper.session.exists("/brokers/ids/1")
        one.membership._conflict_timeout_ms = 100  # Otherwise the test would take one session timeout.
        await in_thread(end_session, one.zookeeper.session, zookeeper)
        await waiting
        await until(lambda: one.events[-1].startswith("failed") and not one.membership.is_connected)
        usurper.membership.close()
        await usurper.zookeeper.close()


@on_reactor
async def test_a_hanging_zookeeper_suspends_and_resumes(
    zookeeper_process: Callable[..., ZooKeeperProcess],
) -> None:
    server = zookeeper_process(tick_time_ms=2000)
    members = Members(server.connect)
    one = await members.start(1, session_timeout_ms=4000)
    server.pause()
    await until(lambda: one.events[-1] == "suspended" and not one.membership.is_connected)
    server.resume()
    await until(lambda: one.events[-1] in ("resumed", "registered") and one.membership.is_connected)
    await members.stop(1)


@on_reactor
async def test_one_of_many_candidates_is_elected_and_all_agree(zookeeper: str) -> None:
    members = Members(zookeeper)
    made = [members.make(broker_id) for broker_id in range(1, 6)]
    for member in made:
        members.members[member.broker_id] = member
        member.zookeeper.start()
    await DeferredList([member.membership.start() for member in made])
    await until(lambda: all(member.candidacy.controller_id is not None for member in made))
    first = members.controller()
    assert {member.candidacy.controller_id for member in made} == {first.broker_id}
    term = first.candidacy.term
    assert term is not None
    assert term.epoch == 1
    # After the controller leaves, the others stand for election to the next epoch.
    await members.stop(first.broker_id)
    left = list(members.members.values())
    await until(lambda: any(member.controller.is_active for member in left))
    second = members.controller()
    assert second.candidacy.term is not None
    assert second.candidacy.term.epoch == 2
    await until(lambda: {member.candidacy.controller_id for member in left} == {second.broker_id})
    for member in left:
        await members.stop(member.broker_id)


@on_reactor
async def test_a_controller_removed_by_hand_is_followed_by_an_election(zookeeper: str) -> None:
    async with cluster(zookeeper, 1, 2) as members:
        first = members.members[1].candidacy.term
        assert first is not None
        await members.members[2].zookeeper.session.delete(CONTROLLER)
        terms = [member.candidacy for member in members.members.values()]
        await until(lambda: any(each.term is not None and each.term.epoch > first.epoch for each in terms))
        await until(lambda: len({each.controller_id for each in terms}) == 1)
        await until(lambda: sum(member.controller.is_active for member in members.members.values()) == 1)


@on_reactor
async def test_a_controller_that_is_elected_again_has_a_new_term(zookeeper: str) -> None:
    async with cluster(zookeeper, 1) as members:
        one = members.members[1]
        first = one.candidacy.term
        assert first is not None
        await one.zookeeper.session.delete(CONTROLLER)
        await until(lambda: one.candidacy.term not in (None, first))
        made = await one.controller.create_topics([TopicCreation("t")], 15_000)
        assert made["t"].error == ErrorCode.NONE


@on_reactor
async def test_a_cluster_has_one_id_and_generates_unique_broker_ids(zookeeper: str) -> None:
    async with connected(zookeeper) as client, connected(zookeeper) as other:
        await DeferredList([ensureDeferred(prepare_layout(each.session)) for each in (client, other)])
        assert await cluster_id(client, os.urandom) == await cluster_id(other, os.urandom)
        numbers = [await generate_broker_id(each, 1000) for each in (client, other, client)]
        assert numbers == [1001, 1002, 1003]
