"""An unclean election cuts off what a pass of the cleaner is copying, or for which it has removed earlier
records: the pass must not bring back the former, and the log must not go on without the latter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.cleaning.cleaner import Cleaner
from holdfast_log.broker.log.names import CLEANED, LOG
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.batches import split
from tests.models.world import World
from tests.sim.checkpoint_judge import CheckpointJudge
from tests.sim.client import Surroundings
from tests.sim.cluster import Cluster, Machine
from tests.sim.history import History
from tests.sim.keyed_history import KeyedHistory
from tests.sim.keyed_writer import KeyedWriter
from tests.sim.operator import Operator
from tests.sim.pass_judge import PassJudge, stored_rows
from tests.sim.plan import Topic
from tests.sim.test_cluster import AT

WORLD_SEED = 3
"""Draws a schedule in which each known bug that these scenarios are for shows."""
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "400",
    "min.cleanable.dirty.ratio": "0.01",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "true",
}


class Scene:
    """Three brokers, a compacted topic that may have unclean elections, and a client that writes to it. The
    passes over the leader's log stand still while `is_holding`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = Cluster(world, 3, {"log.cleaner.backoff.ms": 100})
        self.history = History(world, may_lose=frozenset({"t"}), compacted=frozenset({"t"}))
        self.judge = PassJudge(self.cluster, self.history)
        self.checkpoint_judge = CheckpointJudge(self.cluster, self.history)
        addresses = [machine.address for machine in self.cluster.machines]
        around = Surroundings(
            world, self.cluster.network, self.history, addresses, self.cluster.life_of, self.cluster.decider
        )
        self.cluster.start()
        topic = Topic("t", 1, 3, tuple(CONFIGS.items()), may_lose=True, is_compacted=True)
        operator = Operator(around, "admin", [topic], [], 3)
        operator.start()
        self.until(lambda: operator.is_done and self.cluster.is_whole())
        self.writer = KeyedWriter(around, "b0", AT, KeyedHistory(self.history), blind_share=1.0)
        self.writer.start()
        self.leader = self.cluster.machine(self.cluster.states()[AT].leader)
        self.others = [each for each in self.cluster.machines if each is not self.leader]
        self.shared = 0
        """The offset before which all replicas have the same records when the followers are killed."""
        self.is_holding = False
        self.held: list[Deferred[None]] = []

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        for _ in range(int(seconds * 20)):
            if condition():
                return
            self.world.run(0.05)
        raise TimeoutError(f"the condition did not hold within {seconds} s")

    def partition(self, machine: Machine) -> Partition:
        partition = machine.partition(AT)
        assert partition is not None
        return partition

    @property
    def led(self) -> Partition:
        """The replica of the first leader."""
        return self.partition(self.leader)

    def is_closed(self, offset: int) -> bool:
        """Whether the first leader's segment with this offset takes no appends any more."""
        log = self.led.log
        return next(log.segments.from_offset(offset)) is not log.segments.active

    def has_copy_of(self, offset: int) -> bool:
        """Whether a pass of the first leader has copied the segment with this offset, left out a record, and
        not replaced it yet."""
        copies = [
            split(data) for data in self.leader.disk.contents(self.led.log.directory, f"{LOG}{CLEANED}")
        ]
        return any(
            headers[-1].next_offset > offset
            and sum(header.record_count for header in headers)
            < headers[-1].next_offset - headers[0].base_offset
            for headers in copies
            if headers
        )


@pytest.fixture
def scene(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(world)
    hold_passes(scene, monkeypatch)
    with scene.judge.watching(), scene.checkpoint_judge.watching():
        yield scene


def hold_passes(scene: Scene, patches: pytest.MonkeyPatch) -> None:
    """Let the next pass over the leader's log that copies the end of what all replicas have stand still after
    it has copied, as if the limit of the cleaner's rate made it wait."""
    pause = Cleaner._pause

    def held(cleaner: Cleaner, size: int) -> Deferred[None]:
        is_leaders = scene.is_holding and scene.led.log in cleaner.busy
        if not (is_leaders and scene.has_copy_of(scene.shared)):
            return pause(cleaner, size)
        scene.held.append(Deferred())
        return scene.held[-1]

    patches.setattr(Cleaner, "_pause", held)


def test_a_pass_ends_when_an_unclean_election_has_cut_off_what_it_copies(scene: Scene) -> None:
    # The first segment, whose second record is the last one that all have, will be closed with others behind
    # it. The first pass of all has replaced nothing yet: the log is truncated, and not copied anew.
    scene.until(lambda: scene.led.log.log_end_offset == 2)
    for other in scene.others:
        other.kill()
    scene.shared, scene.is_holding = scene.led.log.log_end_offset - 1, True
    scene.until(lambda: bool(scene.held))
    truncations = scene.led.log.truncations
    replace_the_leader(scene)
    scene.until(lambda: scene.led.log.truncations > truncations)
    assert scene.led.log.log_end_offset > 0
    scene.until(lambda: scene.led.log.log_end_offset > scene.shared and scene.is_closed(scene.shared))
    scene.is_holding = False
    for pause in scene.held:
        pause.callback(None)
    replacements = scene.judge.replacements
    scene.until(lambda: scene.judge.replacements > replacements + 2)
    assert scene.history.violations == []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_log_without_the_later_records_for_which_a_pass_removed_earlier_ones_is_copied_anew(
    scene: Scene, is_restarted: bool
) -> None:
    """The new leader has the earlier records, and not the later ones. A follower does not fetch again what
    lies before its log's end."""
    scene.until(lambda: scene.led.log.log_end_offset > 10)
    for other in scene.others:
        other.kill()
    shared = scene.led.log.log_end_offset
    lasts = lasts_of_keys(scene, scene.leader, shared)
    scene.until(lambda: lasts_of_keys(scene, scene.leader, shared) != lasts)
    if is_restarted:
        replace_the_leader_while_it_is_down(scene)
    else:
        replace_the_leader(scene)
    scene.until(lambda: len(scene.cluster.states()[AT].isr) == 3 and scene.cluster.is_whole())
    scene.until(lambda: end_of_all(scene) > shared)
    end_offset = end_of_all(scene)
    for other in scene.others:
        assert lasts_of_keys(scene, scene.leader, end_offset) == lasts_of_keys(scene, other, end_offset)
    assert scene.history.violations == []


def end_of_all(scene: Scene) -> int:
    """The offset before which all replicas have copied the log."""
    return min(scene.partition(machine).log.log_end_offset for machine in scene.cluster.machines)


def lasts_of_keys(scene: Scene, machine: Machine, end_offset: int) -> dict[bytes | None, int]:
    """The offset of the last record of each key that a replica has before `end_offset`."""
    rows = sorted(stored_rows(machine, scene.partition(machine)).items())
    return {key: offset for offset, (key, _) in rows if offset < end_offset}


def replace_the_leader_while_it_is_down(scene: Scene) -> None:
    """Kill the leader, let one of the others lead, and start the leader again."""
    scene.leader.kill()
    for other in scene.others:
        other.start()
    scene.until(lambda: scene.cluster.states()[AT].leader not in (scene.leader.broker_id, -1))
    scene.leader.start()
    scene.until(lambda: scene.leader.partition(AT) is not None)


def replace_the_leader(scene: Scene) -> None:
    """Cut the leader off, and let one of the others lead, which have fewer records. Then end the cuts."""
    leader, network = scene.leader, scene.cluster.network
    for name in (*(other.name for other in scene.others), scene.writer.name):
        network.cut(leader.name, name)
        network.cut(name, leader.name)
    leader.cut_off_zookeeper()
    for other in scene.others:
        other.start()
    scene.until(lambda: scene.cluster.states()[AT].leader not in (leader.broker_id, -1))
    network.heal()
    leader.mend_zookeeper()
