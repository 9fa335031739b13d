"""Short scenarios in a simulated cluster. A seed once found a bug in each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from tests.models.rules import Rules
from tests.models.world import World
from tests.sim.client import Surroundings
from tests.sim.cluster import Cluster
from tests.sim.consumer import Consumer
from tests.sim.history import History, Outcome
from tests.sim.operator import Operator
from tests.sim.plan import Topic
from tests.sim.producer import Producer, ProducerHabits

AT = ("t", 0)
ALL = ProducerHabits(-1, is_idempotent=True, interval_ms=100)


class Stage:
    """A cluster with one topic of one partition, a producer and a consumer."""

    def __init__(
        self,
        world: World,
        brokers: int,
        configs: dict[str, str],
        habits: ProducerHabits = ALL,
        authorizer: Rules | None = None,
    ) -> None:
        self.world = world
        self.cluster = Cluster(world, brokers, authorizer=authorizer)
        self.history = History(world)
        self.around = Surroundings(
            world,
            self.cluster.network,
            self.history,
            [machine.address for machine in self.cluster.machines],
            self.cluster.life_of,
            self.cluster.decider,
        )
        self.cluster.start()
        topic = Topic("t", 1, brokers, tuple(configs.items()))
        self.operator = Operator(self.around, "admin", [topic], [], brokers)
        self.operator.start()
        self.until(lambda: self.operator.is_done and self.cluster.is_whole())
        self.producer = Producer(self.around, "p0", follows=["t"], habits=habits)

    def consumer(self) -> Consumer:
        consumer = Consumer(self.around, "c0", follows=["t"])
        consumer.start()
        return consumer

    def has_read(self, consumer: Consumer) -> int:
        """Number of records of the partition that a consumer has read."""
        return sum(consumer.positions().values())

    def until(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        for _ in range(int(seconds * 20)):
            if condition():
                return
            self.world.run(0.05)
        raise AssertionError(
            f"the condition did not hold within {seconds} s:\n" + "\n".join(self.world.trace.lines)
        )

    def produce(self, seconds: float) -> int:
        """Produce for some seconds. Returns the total number of acknowledged records."""
        self.producer.is_making = True
        self.producer.start()
        self.world.run(seconds)
        self.producer.is_making = False
        self.until(lambda: self.producer.is_idle)
        return self.acknowledged()

    def acknowledged(self) -> int:
        """Total number of acknowledged records."""
        return sum(len(batch.values) for batch in self.history.batches if batch.outcome is Outcome.ACKED)

    def epoch(self) -> int:
        return self.cluster.states()[AT].leader_epoch

    def leader(self) -> int:
        return self.cluster.states()[AT].leader


WORLD_SEED = 7


def test_a_restarted_broker_serves_all_acknowledged_records_without_a_new_write(world: World) -> None:
    stage = Stage(world, 1, {"flush.before.ack": "true"})
    acknowledged = stage.produce(3)
    assert acknowledged > 20
    machine = stage.cluster.machine(1)
    machine.kill()
    machine.start()
    consumer = stage.consumer()
    stage.until(lambda: stage.has_read(consumer) == acknowledged)
    assert stage.history.violations == []


def test_a_leader_that_restarts_with_empty_disks_during_a_controller_change_is_replaced(world: World) -> None:
    """The leader is also the controller. It restarts before the next controller reads the state."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    acknowledged = stage.produce(3)
    stage.cluster.zookeeper.stop()
    machine = stage.cluster.machine(stage.leader())
    machine.wipe()
    machine.start()
    stage.cluster.zookeeper.start()
    stage.until(lambda: stage.epoch() > 0 and stage.cluster.is_whole(), 60)
    consumer = stage.consumer()
    stage.until(lambda: stage.has_read(consumer) == acknowledged)
    assert stage.history.violations == []


@pytest.mark.parametrize("leads", [True, False])
def test_a_lone_controller_that_lost_the_end_of_its_log_does_not_elect_itself(
    world: World, leads: bool
) -> None:
    """No controller noticed that the broker had failed; it becomes controller while all others are down."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    stage.produce(2)
    machine = next(each for each in stage.cluster.machines if (each.broker_id == stage.leader()) == leads)
    others = [each for each in stage.cluster.machines if each is not machine]
    machine.lose_power()
    for other in others:
        other.kill()
    world.run(7)
    assert stage.cluster.broker_epochs() == {}
    machine.start()
    world.run(10)
    assert stage.leader() == -1
    for other in others:
        other.start()
    stage.until(stage.cluster.is_whole, 60)
    consumer = stage.consumer()
    stage.until(lambda: stage.has_read(consumer) == stage.acknowledged())
    assert stage.history.violations == []


@pytest.mark.parametrize("leads", [True, False])
def test_brokers_that_survive_a_zookeeper_outage_serve_without_the_one_that_died(
    world: World, leads: bool
) -> None:
    """The survivors' sessions expire and they register again, but their processes are the same."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    acknowledged = stage.produce(3)
    zookeeper = stage.cluster.zookeeper
    zookeeper.stop()
    next(each for each in stage.cluster.machines if (each.broker_id == stage.leader()) == leads).kill()
    world.run(10)
    zookeeper.wake()
    consumer = stage.consumer()
    stage.until(lambda: stage.has_read(consumer) == acknowledged)
    more = stage.produce(3)
    assert more > acknowledged
    stage.until(lambda: stage.has_read(consumer) == more)
    assert len(stage.cluster.broker_epochs()) == 2
    assert stage.history.violations == []


def test_records_acknowledged_while_a_leader_is_cut_off_survive_its_replacement(world: World) -> None:
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    stage.produce(1)
    leader = stage.cluster.machine(stage.leader())
    leader.cut_off_zookeeper()
    for other in stage.cluster.machines:
        if other is not leader:
            stage.cluster.network.cut(leader.name, other.name)
            stage.cluster.network.cut(other.name, leader.name)
    acknowledged = stage.produce(12)
    assert stage.leader() != leader.broker_id
    stage.cluster.mend()
    stage.until(lambda: stage.cluster.is_whole(), 60)
    consumer = stage.consumer()
    stage.until(lambda: stage.has_read(consumer) >= acknowledged)
    assert stage.history.violations == []


def test_a_starting_broker_refuses_requests_addressed_to_its_previous_process(world: World) -> None:
    """The previous process's session still registers the broker. A controller could use its epoch to make the
    new process, which has empty disks, a leader."""
    stage = Stage(world, 3, {"min.insync.replicas": "2"})
    state = stage.cluster.states()[AT]
    machine = next(each for each in stage.cluster.machines if each.broker_id != state.leader)
    broker_epoch = stage.cluster.broker_epochs()[machine.broker_id]
    machine.wipe()
    machine.start()
    world.run(3)
    assert machine.partitions() == []
    answers: list[LeaderAndIsrResponse] = []
    order = order_to_lead(stage, machine.broker_id, broker_epoch)
    sender = next(each for each in stage.cluster.machines if each.broker_id == state.leader)
    sender.ask_broker(machine.broker_id, order).addCallback(answers.append)
    world.run(1)
    assert (answers, machine.partitions()) == ([], [])
    stage.until(lambda: bool(answers))
    assert answers[0].error_code == ErrorCode.STALE_BROKER_EPOCH
    stage.until(stage.cluster.is_whole)


def order_to_lead(stage: Stage, broker_id: int, broker_epoch: int) -> LeaderAndIsrRequest:
    state, topic = stage.cluster.states()[AT], stage.cluster.topics()[AT[0]]
    assert topic.topic_id is not None
    partition = LeaderAndIsrPartitionState(
        partition_index=AT[1],
        controller_epoch=state.controller_epoch,
        leader=broker_id,
        leader_epoch=state.leader_epoch + 1,
        isr=list(state.isr),
        partition_epoch=1,
        replicas=list(state.isr),
        adding_replicas=[],
        removing_replicas=[],
    )
    return LeaderAndIsrRequest(
        controller_id=state.leader,
        controller_epoch=state.controller_epoch,
        broker_epoch=broker_epoch,
        type=0,
        topic_states=[
            LeaderAndIsrTopicState(topic_name=AT[0], topic_id=topic.topic_id, partition_states=[partition])
        ],
        live_leaders=[],
    )


def test_brokers_need_no_rights_among_themselves(world: World) -> None:
    """Clients may do nothing while a broker restarts with empty disks: it gets its replica all the same, and
    the next leader is elected. Then they may again, and read all that was acknowledged."""
    rules = Rules(set())
    stage = Stage(world, 3, {"min.insync.replicas": "2"}, authorizer=rules)
    acknowledged = stage.produce(3)
    rules.change(None)
    machine = stage.cluster.machine(stage.leader())
    machine.wipe()
    machine.start()
    stage.until(lambda: stage.epoch() > 0 and stage.cluster.is_whole(), 60)
    consumer = stage.consumer()
    world.run(5)
    assert stage.has_read(consumer) == 0
    rules.change(set())
    stage.until(lambda: stage.has_read(consumer) == acknowledged, 60)
    assert stage.history.violations == []
