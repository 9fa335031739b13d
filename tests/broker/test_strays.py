"""A broker restarts with logs, and the real controller's update shows which of them are still assigned to it.

See `broker.orders.strays`."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from holdfast_log.broker.orders.strays import Strays
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.log.test_manager import Broker
from tests.broker.world import World, fired
from tests.coordinator.controller.machine import Machine, sent_to
from tests.models.logs import make_rivals, sim_disk

ME, OTHER = 1, 2


class Return:
    """Broker 1 of a cluster of two returns after an absence."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.world = World(directory)
        self.strays = Strays(ME, self.world.logs, self.world.replicas, self.world.roles)
        self.machine = Machine(OTHER, ME)

    def topic(self, name: str, *replicas: int) -> None:
        """A topic of one partition with a log on broker 1."""
        self.machine.create(name, replicas)
        self.has_log(name, self.machine.controller.state.topics[name].topic_id)

    def has_log(self, name: str, topic_id: uuid.UUID | None) -> None:
        self.world.logs.get_or_create(TopicPartition(name, 0), topic_id)

    def tell(self) -> None:
        """Register the broker, and apply the controller's complete update."""
        effects = self.machine.start(ME)
        for request in sent_to(effects, ME, LeaderAndIsrRequest):
            self.strays.before_roles(request)
            assigned = self.world.roles.apply_leader_and_isr(request)
            self.world.clock.advance(0)
            fired(assigned)
        for metadata in sent_to(effects, ME, UpdateMetadataRequest):
            self.world.metadata.update(metadata)
            self.strays.after_metadata(metadata)

    def logs(self) -> list[str]:
        return sorted(log.topic_partition.topic for log in self.world.logs)

    def moved_aside(self) -> list[str]:
        return sorted(path.name.partition("-0.")[0] for path in self.directory.glob("*-stray"))


@pytest.fixture
def back(tmp_path: Path) -> Return:
    return Return(tmp_path)


def test_a_log_still_assigned_to_the_broker_stays(back: Return) -> None:
    back.topic("led", ME)
    back.topic("followed", OTHER, ME)
    back.tell()
    assert (back.logs(), back.moved_aside()) == (["followed", "led"], [])


def test_a_log_reassigned_to_other_brokers_is_moved_aside(
    back: Return, caplog: pytest.LogCaptureFixture
) -> None:
    back.topic("moved", ME, OTHER)
    back.topic("kept", ME, OTHER)
    back.machine.lose(ME)
    back.machine.controller.state.partition(("moved", 0)).assignment = ReplicaAssignment((OTHER,))
    back.tell()
    assert (back.logs(), back.moved_aside()) == (["kept"], ["moved"])
    assert "stray log of moved-0, because its partition has moved to other brokers, to" in caplog.text
    assert list(back.directory.glob("moved-0.*-stray/*.log")), "its records are still there"


def test_a_log_of_a_deleted_topic_is_moved_aside(back: Return) -> None:
    back.topic("kept", ME)
    back.has_log("gone", uuid.UUID(int=99))
    back.tell()
    assert (back.logs(), back.moved_aside()) == (["kept"], ["gone"])


def test_a_recreated_topic_gets_a_new_log(back: Return) -> None:
    back.has_log("remade", uuid.UUID(int=99))
    back.machine.create("remade", (ME,))
    back.tell()
    assert (back.logs(), back.moved_aside()) == (["remade"], ["remade"])
    partition = back.world.replicas.find("remade", 0)
    assert partition is not None
    assert partition.log.topic_id == back.machine.controller.state.topics["remade"].topic_id


def test_a_deleted_log_that_a_power_failure_has_brought_back_makes_way_for_a_new_topic(back: Return) -> None:
    """The controller learned of the deletion before the failure, so it does not ask for it again."""
    back.tell()
    back.has_log("remade", uuid.UUID(int=99))
    effects = back.machine.create("remade", (ME, OTHER))
    (roles,) = sent_to(effects, ME, LeaderAndIsrRequest)
    back.strays.before_roles(roles)
    assert (back.logs(), back.moved_aside()) == ([], ["remade"])


def test_a_log_of_a_topic_being_deleted_is_left_to_the_deletion(back: Return) -> None:
    back.topic("going", ME, OTHER)
    back.machine.lose(ME)
    back.machine.delete("going")
    back.tell()
    assert (back.logs(), back.moved_aside()) == (["going"], [])


def test_a_log_without_a_topic_id_is_left_alone(back: Return) -> None:
    back.topic("kept", ME)
    back.has_log("old", None)
    back.tell()
    assert (back.logs(), back.moved_aside()) == (["kept", "old"], [])


def test_an_incomplete_update_moves_no_log(back: Return) -> None:
    back.has_log("unheard-of", uuid.UUID(int=99))
    effects = back.machine.create("new", (ME, OTHER))
    (roles,) = sent_to(effects, ME, LeaderAndIsrRequest)
    back.strays.before_roles(roles)
    for metadata in sent_to(effects, ME, UpdateMetadataRequest):
        back.strays.after_metadata(metadata)
    assert back.logs() == ["unheard-of"]


def test_updates_of_two_controllers_do_not_add_up_to_a_complete_one(back: Return) -> None:
    back.has_log("unheard-of", uuid.UUID(int=99))
    effects = back.machine.start(ME)
    (roles,) = sent_to(effects, ME, LeaderAndIsrRequest)
    (metadata,) = sent_to(effects, ME, UpdateMetadataRequest)
    back.strays.before_roles(roles)
    metadata.controller_epoch += 1
    back.strays.after_metadata(metadata)
    assert back.logs() == ["unheard-of"]


def test_a_stray_log_stays_aside_after_a_restart(back: Return) -> None:
    back.has_log("gone", uuid.UUID(int=99))
    back.tell()
    back.world.logs.close({})
    again = World(back.directory)
    assert list(again.logs) == []
    assert back.moved_aside() == ["gone"]


def test_of_two_logs_the_one_with_the_present_topic_id_counts(back: Return) -> None:
    """The older log's directory was offline when the topic was recreated. Without the newer log, the replica,
    which may be in sync, would start empty."""
    partition = TopicPartition("remade", 0)
    back.machine.create("remade", (ME,))
    topic_id = back.machine.controller.state.topics["remade"].topic_id
    disk = sim_disk()
    make_rivals(disk, uuid.UUID(int=99), topic_id, partition)
    logs = Broker(disk, ("/d1", "/d2")).logs
    assert logs.get_or_create(partition).topic_id == uuid.UUID(int=99)
    strays = Strays(ME, logs, back.world.replicas, back.world.roles)
    (roles,) = sent_to(back.machine.start(ME), ME, LeaderAndIsrRequest)
    strays.before_roles(roles)
    log = logs.get_or_create(partition, topic_id)
    assert (log.topic_id, log.log_end_offset) == (topic_id, 1)
