"""The faults of the faulty phase: drawn from the seed, one after another and several at once.

Most faults may hit any machine at any time. Faults that destroy written data (`lose_power`, `wipe`) are made
only while each of the machine's partitions has another in-sync replica on a running machine with sound disks:
without an fsync for each record, no replicated log promises more (Kafka design §4.7). No further fault begins
until a controller has recorded that the machine has restarted. If a topic has min.insync.replicas=1, such
faults wait until all other faults have ended: if the session of the other replica expired first, the machine
that has lost records would be the last one in sync. With min.insync.replicas=2, one machine may lose power
even if it has the last in-sync replica, provided that the other machines lose nothing (KIP-966). If all
topics have flush.before.ack, which makes that fsync, any machine may lose power at any time.

A fault that is not possible when its time comes is tried again for some seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.coordinator.transactions.partitions import TRANSACTIONS_TOPIC
from holdfast_log.coordinator.znodes.brokers import broker_path
from holdfast_log.coordinator.znodes.controller import CONTROLLER_BROKERS
from holdfast_log.coordinator.zookeeper.interface import Delete, WriteOperation
from holdfast_log.protocol.batches import BatchHeader, split
from holdfast_log.protocol.messages.alter_partition import AlterPartitionRequest
from holdfast_log.protocol.messages.get_replica_log_info import GetReplicaLogInfoRequest
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.models.network import Weather
from tests.models.world import Process
from tests.sim.cluster import LOG_DIRECTORIES, Cluster, Machine

if TYPE_CHECKING:
    from tests.sim.scenario import Story

_COORDINATOR_SHARE = 0.5
"""The share of aimed faults, in seeds with transactions, that hit a coordinator of transactions."""
_RETURN_S_MAX = 10.0
_TWO_FALL_SHARE = 0.3
_FOLLOW_UP_S = 0.05
_POLL_S = 0.25
_PATIENCE_S = 6.0
"""Seconds for which a fault that is not possible yet is tried again."""
_FALLS_AGAIN_SHARE = 0.5
_SYNCS_FAIL_SHARE = 0.3
LOOK_S = 0.02
"""Seconds between two looks at what a fault waits for."""
_CUT_SHARE = 0.5
_INDEX_CUT_SHARE = 0.2
"""The shares of changes of a log, and of its indexes, that cut off the end of the file."""
_CUT_BETWEEN_SHARE = 0.7
_DIVERGES_SHARE = 0.3
"""The share of changes of a disk's content that hit a follower whose log is about to diverge."""
_DIVERGES_S_MAX = 3.0
_LENGTH_POSITION = 8
_LEADER_EPOCH_POSITION = 12
"""Where a batch has its length and its leader epoch, in bytes from its start."""
_NEWEST_SHARE = 0.4
"""The share of changes of a disk's content that hit the newest segment of a leader's log."""
_LAST_BATCH_SHARE = 0.4
_UNCHECKED_SHARE = 0.6
"""The shares of such changes in the last batch, and in what the checksum of the batch does not cover."""
_RESTARTED_SHARE = 0.5
"""The share of changes of a disk's content after which the broker is killed and restarts."""
_MEDDLED = (
    AlterPartitionRequest.api,
    LeaderAndIsrRequest.api,
    UpdateMetadataRequest.api,
    StopReplicaRequest.api,
    GetReplicaLogInfoRequest.api,
)
"""Requests between brokers that `meddle` may lose, delay, repeat or leave without an answer."""

End = Callable[[], None]
"""Ends a fault."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault: how often it is drawn, how long it lasts, and the function that begins it. `begin`
    returns the function that ends the fault, or None if the fault is not possible now."""

    name: str
    weight: int
    seconds: tuple[float, float]
    begin: Callable[[Any, Machine], End | None]


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault of a plan. It begins `at_s` seconds after the start of the faulty phase, if it is possible
    then, and lasts for `seconds`. An aimed fault hits a leader or the controller, if there is one."""

    number: int
    kind: str
    at_s: float
    seconds: float
    is_aimed: bool


class Faults:
    """Makes a plan's faults during the faulty phase of its story."""

    def __init__(self, story: Story) -> None:
        self.cluster: Cluster = story.cluster
        self.rng = random.Random()
        """Random numbers for the fault that begins. Each fault has its own generator, so that a fault draws
        the same values whether or not other faults are left out of the plan."""
        self._story = story
        self._world = story.world
        self._active = 0
        self._fallen: dict[Machine, int] = {}
        """The machines that have lost data, each with the number of the process that ran then, or that ran
        last, until a controller has recorded the start of a later process."""
        configs = [config for topic in story.plan.topics for config in topic.configs]
        self._is_thin = False
        """Whether a machine has lost data, and the cluster has not been whole since."""
        self._commits_alone = ("min.insync.replicas", "1") in configs
        """Whether the last in-sync replica of some topic commits records."""
        self._rotten: tuple[Machine, str] | None = None
        """The machine and path of the log file that `rot` damaged last."""

    def kind(self, name: str) -> Kind:
        """The kind of fault of this name. Raises KeyError if there is none."""
        return _KINDS_BY_NAME[name]

    def begin(self) -> None:
        for strike in self._story.plan.strikes:
            self._world.clock.callLater(strike.at_s, self._strike, strike, _PATIENCE_S)

    def _strike(self, strike: Strike, patience_s: float) -> None:
        """Begin a fault. If it is not possible now, try again until `patience_s` seconds have passed."""
        if not self._story.is_faulty:
            return
        if self._story.plan.shape.is_gentle and (self._active or not self.cluster.is_whole()):
            return
        kind = self.kind(strike.kind)
        self.rng = self._world.rng(f"fault {strike.number}")
        machine = self._victim(strike)
        end = None
        if not self._is_fragile():
            self._world.trace(f"fault {strike.number}", f"{kind.name} on {machine.name}")
            end = kind.begin(self, machine)
        if end is None:
            if patience_s > 0:
                self._world.clock.callLater(_POLL_S, self._strike, strike, patience_s - _POLL_S)
            return
        self._story.faults[kind.name] += 1
        self._story.recovery.fault_began()
        self._active += 1
        self._world.clock.callLater(strike.seconds, self._end, strike, end)

    def _end(self, strike: Strike, end: End) -> None:
        self._active -= 1
        # After the faulty minute the story has ended every fault already.
        if self._story.is_faulty:
            self._world.trace(f"fault {strike.number}", f"{strike.kind} ends")
            end()
            if not self._active and not self._is_fragile():
                self._story.recovery.faults_ended()

    def _while_faulty(self, strike: Callable[[], None]) -> None:
        if self._story.is_faulty:
            strike()

    def _victim(self, strike: Strike) -> Machine:
        machines = self.cluster.machines
        if not strike.is_aimed:
            return self.rng.choice(machines)
        if self._story.plan.transactions is not None and self.rng.random() < _COORDINATOR_SHARE:
            coordinators = [machine for machine in machines if _coordinates_transactions(machine)]
            return self.rng.choice(coordinators or machines)
        important = [
            machine
            for machine in machines
            if any(isinstance(partition.role, Leadership) for partition in machine.partitions())
            or (machine.is_controller)
        ]
        return self.rng.choice(important or machines)

    # Processes, machines and disks

    def kill(self, machine: Machine) -> End | None:
        if not machine.is_up:
            return None
        machine.kill()
        return machine.start

    def stop(self, machine: Machine) -> End | None:
        if not machine.is_running or machine.is_stopping:
            return None
        machine.stop()

        def start_again() -> None:
            if machine.is_stopping:
                self._world.clock.callLater(0.5, start_again)
            else:
                machine.start()

        return start_again

    def pause(self, machine: Machine) -> End | None:
        if not machine.is_running:
            return None
        machine.pause()
        return machine.resume

    def strike_controller(self, machine: Machine) -> End | None:
        """Pause or kill the controller after it writes its next decision, before any broker receives it."""
        zookeeper = self.cluster.zookeeper
        if zookeeper.written is not None:
            return None
        is_killed = self.rng.random() < 0.5
        struck: list[Machine] = []

        def written(operations: Sequence[WriteOperation], process: Process) -> None:
            writer = next((each for each in self.cluster.machines if each.process is process), None)
            if writer is None or not any(operation.path.endswith("/state") for operation in operations):
                return
            zookeeper.written = None
            struck.append(writer)
            if is_killed:
                writer.kill()
            else:
                writer.pause()

        def end() -> None:
            zookeeper.written = None
            for writer in struck:
                writer.resume()
                writer.start()

        zookeeper.written = written
        return end

    def strike_leader(self, machine: Machine) -> End | None:
        """Pause or kill the next broker that replaces another as leader, before it learns of its election."""
        zookeeper = self.cluster.zookeeper
        if zookeeper.written is not None:
            return None
        is_killed = self.rng.random() < 0.7
        leaders = {at: state.leader for at, state in self.cluster.states().items()}
        struck: list[Machine] = []

        def written(operations: Sequence[WriteOperation], process: Process) -> None:
            for at, state in self.cluster.states().items():
                if state.leader > 0 and leaders.get(at, 0) not in (0, state.leader):
                    zookeeper.written = None
                    leader = self.cluster.machine(state.leader)
                    struck.append(leader)
                    if is_killed:
                        leader.kill()
                    else:
                        leader.pause()
                    return

        def end() -> None:
            zookeeper.written = None
            for leader in struck:
                leader.resume()
                leader.start()

        zookeeper.written = written
        return end

    def fail_rack(self, machine: Machine) -> End | None:
        """Kill all machines but one at almost the same time."""
        others = [other for other in self.cluster.machines if other is not machine and other.is_up]
        if not others or len(others) + 1 < len(self.cluster.machines):
            return None
        for other in others:
            self._world.clock.callLater(self.rng.random() * _FOLLOW_UP_S, self._while_faulty, other.kill)

        def end() -> None:
            for other in others:
                other.start()

        return end

    def lose_power(self, machine: Machine) -> End | None:
        """One machine loses power. Two lose it at the same moment if a third replica is in sync."""
        fallen = [machine]
        others = [other for other in self.cluster.machines if other is not machine and other.is_up]
        if others and self.rng.random() < _TWO_FALL_SHARE:
            both = [machine, self.rng.choice(others)]
            fallen = both if self._may_lose_data(*both) else fallen
        if not self._may_lose_data(*fallen):
            return None
        for each in fallen:
            self._lose_power(each)

        def end() -> None:
            for each in fallen:
                each.start()

        return end

    def lose_power_in_outage(self, machine: Machine) -> End | None:
        """A machine loses power while ZooKeeper pauses. Sessions that expired during the pause all end when
        it ends. The machine, and another one that has lost no data, return later, each at its own time."""
        others = [other for other in self.cluster.machines if other is not machine]
        if not others or not self.cluster.zookeeper.available or not self._may_lose_data(machine):
            return None
        late = self.rng.choice(others)
        start_s, mend_s = self.rng.uniform(0.1, 1.5), self.rng.uniform(0.1, 4.0)
        self._lose_power(machine)
        self.cluster.zookeeper.stop()

        def end() -> None:
            late.cut_off_zookeeper()
            self.cluster.zookeeper.wake()
            self._world.clock.callLater(start_s, machine.start)
            self._world.clock.callLater(mend_s, late.mend_zookeeper)

        return end

    def lose_last_power(self, machine: Machine) -> End | None:
        """The machine loses power soon after every other machine is paused or killed. All machines return in
        any order. Between them the others have every acknowledged record, in sync or not."""
        others = [other for other in self.cluster.machines if other is not machine]
        if not others or self._commits_alone or self._is_thin or not self.is_restored():
            return None
        if not machine.is_running or not all(map(_has_sound_disks, self.cluster.machines)):
            return None
        clock, rng = self._world.clock, self.rng
        self._has_fallen(machine)
        for other in others:
            strike = other.kill if rng.random() < 0.5 else other.pause
            clock.callLater(rng.uniform(0, 2), self._while_faulty, strike)
        fall_s = rng.uniform(0.5, 12)
        clock.callLater(fall_s, self._while_faulty, machine.lose_power)
        for each in self.cluster.machines:
            back_s = fall_s + rng.uniform(0.2, _RETURN_S_MAX)
            clock.callLater(back_s, self._while_faulty, each.resume)
            clock.callLater(back_s, self._while_faulty, each.start)
        return lambda: None

    def lose_power_unrecorded(self, machine: Machine) -> End | None:
        """A machine loses power and restarts before its session expires. The controller is killed after it
        next writes a partition's state or its record of brokers, whether or not that write handles the
        restart; not where the two have the only copies of a partition, because then nobody has promised that
        a copy is left."""
        zookeeper = self.cluster.zookeeper
        if zookeeper.written is not None or len(self.cluster.machines) < 3:
            return None
        machine = self._follower_of_controller(machine)
        controllers = [each for each in self.cluster.machines if each.is_controller]
        if not all(self._is_copied_beside(machine, each) for each in controllers):
            return None
        if not self._may_lose_data(machine):
            return None
        self._lose_power(machine)
        machine.start()
        struck: list[Machine] = []

        def written(operations: Sequence[WriteOperation], process: Process) -> None:
            writer = next((each for each in self.cluster.machines if each.process is process), None)
            if writer is None or writer is machine or not writer.is_controller:
                return
            # Its broker also renews a lease, which has nothing to do with the restart.
            paths = [operation.path for operation in operations]
            if CONTROLLER_BROKERS not in paths and not any(path.endswith("/state") for path in paths):
                return
            zookeeper.written = None
            if self._is_copied_beside(machine, writer):
                struck.append(writer)
                writer.kill()

        def end() -> None:
            zookeeper.written = None
            for writer in struck:
                writer.start()

        zookeeper.written = written
        return end

    def _is_copied_beside(self, *machines: Machine) -> bool:
        """Whether every partition has an in-sync replica on another machine than these."""
        broker_ids = {machine.broker_id for machine in machines}
        return all(set(state.isr) - broker_ids for state in self.cluster.states().values())

    def _follower_of_controller(self, machine: Machine) -> Machine:
        """The machine, or another one if it has the controller."""
        if not machine.is_controller:
            return machine
        return self.rng.choice([other for other in self.cluster.machines if other is not machine])

    def leave_behind(self, machine: Machine) -> End | None:
        """A machine is cut off from the others until it has left an in-sync set. As soon as a leader has
        committed records without it, that leader is killed and the cut ends."""
        others = [other.name for other in self.cluster.machines if other is not machine]
        if len(others) < 2 or not machine.is_running:
            return None
        for other in others:
            self._cut(machine.name, other, out=True, back=True)
        struck: list[Machine] = []
        is_over = False

        def look() -> None:
            if is_over or struck or not self._story.is_faulty:
                return
            leader = self._leader_ahead_of(machine)
            if leader is None:
                self._world.clock.callLater(LOOK_S, look)
                return
            struck.append(leader)
            leader.kill()
            self.cluster.network.heal()

        def end() -> None:
            nonlocal is_over
            is_over = True
            self.cluster.network.heal()
            for leader in struck:
                leader.start()

        look()
        return end

    def _leader_ahead_of(self, machine: Machine) -> Machine | None:
        """The machine of a leader that has committed records which `machine` lacks, while the other in-sync
        replicas do not know yet that these records are committed. None if there is no such leader."""
        for at, state in self.cluster.states().items():
            if machine.broker_id in state.isr or len(state.isr) < 2 or state.leader <= 0:
                continue
            found = [each.partition(at) for each in self.cluster.machines]
            replicas = [replica for replica in found if replica is not None]
            if len(replicas) < len(found):
                continue
            leader = self.cluster.machine(state.leader)
            committed = replicas[state.leader - 1].high_watermark
            behind = replicas[machine.broker_id - 1].log.log_end_offset
            others = [
                replica.high_watermark
                for replica in replicas
                if replica.local_id in state.isr and replica.local_id != state.leader
            ]
            if leader.is_running and max(others) <= behind < committed:
                return leader
        return None

    def strike_disk(self, machine: Machine) -> End | None:
        """Kill the machine during a disk write, or cut its power if it may lose data now."""
        if not machine.is_running:
            return None
        rng = self.rng

        def struck() -> None:
            if rng.random() < 0.5 and self._may_lose_data(machine, active=1):
                self._lose_power(machine)
            else:
                machine.kill()

        def end() -> None:
            machine.disk.spare()
            machine.start()

        machine.disk.strike(rng.randrange(60), struck)
        return end

    def set_clock(self, machine: Machine) -> End | None:
        machine.set_clock(self.rng.uniform(-20, 20))
        return lambda: None  # The clock stays wrong.

    def step_clock(self, machine: Machine) -> End | None:
        """An administrator moves the machine's clock by a minute to an hour. Pending timers do not change,
        because a reactor's timers do not follow the time of day."""
        machine.set_clock(self.rng.choice([-1, 1]) * self.rng.uniform(60, 3600))
        return lambda: None  # The clock remains wrong.

    def jitter_clock(self, machine: Machine) -> End | None:
        """Set the machine's clock again and again, forward and back."""
        is_over, rng = False, self.rng

        def jump() -> None:
            if not is_over and self._story.is_faulty:
                machine.set_clock(rng.uniform(-0.5, 0.5))
                self._world.clock.callLater(rng.uniform(0.05, 1.0), jump)

        def end() -> None:
            nonlocal is_over
            is_over = True

        jump()
        return end

    def wipe(self, machine: Machine) -> End | None:
        if len(self.cluster.machines) == 1 or not self._has_copies_elsewhere(machine):
            return None
        self._has_fallen(machine)
        machine.wipe()
        return machine.start

    def unmount(self, machine: Machine) -> End | None:
        """A broker restarts while some or all of its disks are not mounted, even if it has the last in-sync
        replica. No data is lost: the disks are mounted again later."""
        if machine.disk.unmounted or machine.disk.is_failing or not machine.is_up:
            return None
        machine.unmount(LOG_DIRECTORIES if self.rng.random() < 0.5 else [self.rng.choice(LOG_DIRECTORIES)])
        machine.start()

        def end() -> None:
            machine.kill()
            machine.mount()
            machine.start()

        return end

    def rot(self, machine: Machine) -> End | None:
        """Change one bit of a closed segment or of one of its indexes, or cut off the end of such a file.
        Often the broker is killed then, and restarts. Sometimes a follower is damaged that is about to
        truncate its log, or a bit of the newest segment of a leader changes.

        Only one log is damaged at a time, because nobody could repair a record that is damaged on every
        replica. In a cluster of one machine only indexes are damaged: they can be rebuilt from the log."""
        if not machine.is_up or not self.is_restored():
            return None
        if self.rng.random() < _DIVERGES_SHARE and self._damage_diverging():
            return lambda: None
        if self.rng.random() < _NEWEST_SHARE and self._damage_newest(machine):
            return lambda: None
        partitions = sorted(machine.partitions(), key=lambda partition: partition.key)
        closed = [
            segment
            for partition in partitions
            # After an unclean election the other replicas may lack these records, so no copy could repair
            # them.
            if partition.topic not in self._story.history.may_lose
            for segment in partition.log.segments[:-1]
            if len(self.cluster.machines) == 1 or self._is_elsewhere(machine, partition, segment)
        ]
        if not closed:
            return None
        segment = self.rng.choice(closed)
        kinds = (
            (".index", ".timeindex") if len(self.cluster.machines) == 1 else (".log", ".index", ".timeindex")
        )
        path = segment.path_of(self.rng.choice(kinds))
        content = machine.disk.peek(path)
        if not content:
            return None
        if path.endswith(".log"):
            self._rotten = (machine, path)
        position = self.rng.randrange(len(content))
        if self.rng.random() < (_CUT_SHARE if path.endswith(".log") else _INDEX_CUT_SHARE):
            # A cut between two batches leaves a hole that only offsets show.
            if path.endswith(".log") and self.rng.random() < _CUT_BETWEEN_SHARE:
                position = self.rng.choice(split(content)).position
            self._world.trace(machine.name, f"{path} loses its end from byte {position} on")
            machine.disk.cut(path, position)
        else:
            self._world.trace(machine.name, f"a bit changes at byte {position} of {path}")
            machine.disk.rot(path, position, self.rng.randrange(8))
        if self.rng.random() < _RESTARTED_SHARE:
            # The next process finds the damage when it loads its logs.
            machine.kill()
            self._world.clock.callLater(self.rng.uniform(0.2, 2.0), self._while_faulty, machine.start)
        return lambda: None

    def _damage_diverging(self) -> bool:
        """Damage the active segment of an in-sync follower that must soon truncate it. Returns whether there
        is such a follower.

        Its leader is cut off from another in-sync replica, and killed when only the follower has the leader's
        last records. The other replica is elected, because it comes first in the assignment."""
        if not all(machine.is_running for machine in self.cluster.machines):
            return False
        topics = self.cluster.topics()
        found: dict[tuple[Machine, Machine], list[tuple[Partition, Partition]]] = {}
        for at, state in self.cluster.states().items():
            members = [
                self.cluster.machine(member)
                for member in topics[at[0]].partitions[at[1]].replicas
                if member in state.isr and member != state.leader
            ]
            if at[0] in self._story.history.may_lose or state.leader <= 0 or len(members) < 2:
                continue
            ahead, behind = members[-1].partition(at), members[0].partition(at)
            if ahead is not None and behind is not None:
                pair = self.cluster.machine(state.leader), members[0]
                found.setdefault(pair, []).append((ahead, behind))
        if not found:
            return False
        rng = self.rng
        leader, elected = rng.choice(list(found))
        self._cut(leader.name, elected.name, out=True, back=True)
        polls = int(_DIVERGES_S_MAX / LOOK_S)

        def look() -> None:
            nonlocal polls
            polls -= 1
            diverged = [
                ahead
                for ahead, behind in found[leader, elected]
                if ahead.log.log_end_offset > behind.log.log_end_offset and ahead.log.failure is None
            ]
            if not (polls and self._story.is_faulty and self.is_restored()):
                self.cluster.network.heal()
            elif not diverged:
                self._world.clock.callLater(LOOK_S, look)
            else:
                damaged = rng.choice(diverged)
                machine = self.cluster.machine(damaged.local_id)
                self._change_length(machine, damaged.log.segments.active, rng)
                leader.kill()
                self.cluster.network.heal()
                self._world.clock.callLater(rng.uniform(5.0, 10.0), self._while_faulty, leader.start)

        look()
        return True

    def _damage_newest(self, machine: Machine) -> bool:
        """Change one bit of the newest segment of a log that the machine leads, in a batch that another
        in-sync replica has too; often in what the batch's checksum does not cover. Sometimes the broker is
        killed then, or all of them are. Returns whether there is such a batch."""
        rng = self.rng
        found = [
            (partition, header)
            for partition in sorted(machine.partitions(), key=lambda partition: partition.key)
            if isinstance(partition.role, Leadership) and partition.topic not in self._story.history.may_lose
            for header in self._batches_elsewhere(machine, partition)
        ]
        if not found:
            return False
        partition, header = found[-1] if rng.random() < _LAST_BATCH_SHARE else rng.choice(found)
        segment = partition.log.segments.active
        is_unchecked = rng.random() < _UNCHECKED_SHARE
        inner = rng.randrange(_LEADER_EPOCH_POSITION + 3) if is_unchecked else rng.randrange(header.size)
        if is_unchecked and header.crc % 8 == 0:
            # Another epoch, which may have begun. Not drawn, so that the other draws are what they were.
            inner = _LEADER_EPOCH_POSITION + 3
        is_warm = inner < _LEADER_EPOCH_POSITION + 4 and not segment.is_fresh(header.position)
        position = header.position + inner
        self._world.trace(machine.name, f"a bit changes at byte {position} of {segment.path}, in use")
        self._rotten = (machine, segment.path)
        machine.disk.rot(segment.path, position, rng.randrange(8), is_warm=is_warm and rng.random() < 0.5)
        if rng.random() < _RESTARTED_SHARE:
            is_alone = rng.random() < 0.5
            for each in [machine] if is_alone else self.cluster.machines:
                if each.is_running:
                    each.kill()
                    self._world.clock.callLater(rng.uniform(0.2, 2.0), self._while_faulty, each.start)
        return True

    def _batches_elsewhere(self, machine: Machine, partition: Partition) -> list[BatchHeader]:
        """The batches of a log's newest segment that another in-sync replica has too."""
        state, log = self.cluster.states().get(partition.key), partition.log
        others = (
            self.cluster.machine(member).partition(partition.key)
            for member in (state.isr if state is not None else ())
            if member != machine.broker_id
        )
        end = max((other.log.log_end_offset for other in others if other is not None), default=0)
        if log.failure is not None or log.segments.active.damage is not None:
            return []
        batches = split(machine.disk.peek(log.segments.active.path) or b"")
        return [each for each in batches if log.log_start_offset < each.next_offset <= end]

    def _change_length(self, machine: Machine, segment: Segment, rng: random.Random) -> None:
        """Change a bit in the length of one batch, so that no reader of the file finds the next batch."""
        batches = split(machine.disk.peek(segment.path) or b"")
        if batches:
            position = rng.choice(batches).position + _LENGTH_POSITION
            self._world.trace(machine.name, f"a bit changes at byte {position} of {segment.path}")
            self._rotten = (machine, segment.path)
            machine.disk.rot(segment.path, position, 7)

    def _is_elsewhere(self, machine: Machine, partition: Partition, segment: Segment) -> bool:
        """Whether another in-sync replica has all records of a segment."""
        state = self.cluster.states().get(partition.key)
        replicas = (
            self.cluster.machine(member).partition(partition.key)
            for member in (state.isr if state is not None else ())
            if member != machine.broker_id
        )
        return any(
            replica is not None and replica.log.log_end_offset >= segment.next_offset for replica in replicas
        )

    def is_restored(self) -> bool:
        """Whether the damage that `rot` did last to a log file is no longer there: the file was replaced by a
        copy, was removed, or was truncated before the damage."""
        if self._rotten is not None:
            machine, path = self._rotten
            if machine.disk.is_rotten(path):
                return False
            self._rotten = None
        return True

    # Losses of data

    def _may_lose_data(self, *machines: Machine, active: int = 0) -> bool:
        """Whether these machines may lose unsynced writes now."""
        if self._story.plan.is_flushed:
            return all(machine.is_up for machine in machines)
        return self._has_copies_elsewhere(*machines, active=active)

    def _has_copies_elsewhere(self, *machines: Machine, active: int = 0) -> bool:
        """Whether every partition that has one of the machines in sync or eligible has another in-sync
        replica on a machine that runs, whose disks are sound, and whose start a controller has recorded. Then
        the in-sync set relies on no record that only an earlier process of that machine had. `active` counts
        faults that are part of the present one."""
        if self._commits_alone and (self._active > active or not self.cluster.is_whole()):
            return False
        if any(machine not in machines for machine in self._fallen_now()) or not self.is_restored():
            return False
        fallen = {machine.broker_id for machine in machines}
        sound = {
            machine.broker_id
            for machine in self.cluster.machines
            if machine.is_running and _has_sound_disks(machine) and self.cluster.is_start_recorded(machine)
        }
        return all(
            not fallen.intersection((*state.isr, *state.eligible))
            or sound.difference(fallen).intersection(state.isr)
            for state in self.cluster.states().values()
        )

    def _lose_power(self, machine: Machine) -> None:
        self._has_fallen(machine)
        machine.lose_power()

    def _has_fallen(self, machine: Machine) -> None:
        """Record that a machine loses data now, or is about to."""
        self._fallen[machine] = machine.life
        if not self._is_thin:
            self._is_thin = True
            self._world.clock.callLater(_POLL_S, self._look_whether_whole)

    def _look_whether_whole(self) -> None:
        if self.cluster.is_whole() and not self._fallen_now():
            self._is_thin = False
        else:
            self._world.clock.callLater(_POLL_S, self._look_whether_whole)

    def _fallen_now(self) -> list[Machine]:
        """The machines that have lost data, until a controller has recorded that they have restarted."""
        for machine, life in list(self._fallen.items()):
            if machine.is_up and machine.life > life and self.cluster.is_start_recorded(machine):
                del self._fallen[machine]
        return list(self._fallen)

    def _is_fragile(self) -> bool:
        """Whether a machine has lost data, and in-sync sets may still rely on it."""
        return bool(self._fallen_now())

    def fail_directory(self, machine: Machine) -> End | None:
        """A log directory fails: all its I/O, all its writes, or only each fsync of a file. If only these
        failed, the machine then loses power, where it may, so that it loses what was not made durable."""
        if not machine.is_running or machine.disk.is_failing:
            return None
        directory, only_writes = self.rng.choice(LOG_DIRECTORIES), self.rng.random() < 0.5
        if self.rng.random() >= _SYNCS_FAIL_SHARE:
            machine.fail_directory(directory, only_writes=only_writes)
            return lambda: self._repair(machine)
        machine.fail_syncs(directory)

        def end() -> None:
            if machine.is_up and self._may_lose_data(machine):
                self._lose_power(machine)
            self._repair(machine)

        return end

    def make_read_only(self, machine: Machine) -> End | None:
        """Make log directories read-only, while the broker runs or before its next start."""
        if not machine.is_running or machine.disk.is_failing:
            return None
        if self.rng.random() < 0.5:
            machine.kill()
            self._world.clock.callLater(self.rng.uniform(0.5, 2.0), machine.start)
        for directory in self.rng.sample(LOG_DIRECTORIES, self.rng.randint(1, len(LOG_DIRECTORIES))):
            machine.make_read_only(directory)
        return lambda: self._repair(machine)

    def go_back(self, machine: Machine) -> End | None:
        """A machine loses power and restarts with an older copy of its disks."""
        if not machine.is_up or len(self.cluster.machines) == 1 or machine.disk.unmounted:
            return None
        snapshot, start_s = machine.disk.snapshot(), self.rng.uniform(0.5, 6.0)

        def end() -> None:
            if machine.is_up and not machine.disk.unmounted and self._has_copies_elsewhere(machine):
                self._has_fallen(machine)
                machine.go_back(snapshot)
                self._world.clock.callLater(start_s, machine.start)

        return end

    def fill_up(self, machine: Machine) -> End | None:
        if not machine.is_running or machine.disk.is_bounded:
            return None
        machine.fill_up(self.rng.randrange(16 * 1024))
        return lambda: self._repair(machine)

    def _repair(self, machine: Machine) -> None:
        """Replace failed devices, keeping their content. Offline log directories need a broker restart."""
        machine.mend_directories()
        machine.kill()
        machine.start()

    # ZooKeeper

    def cut_off_zookeeper(self, machine: Machine) -> End | None:
        machine.cut_off_zookeeper(silently=self.rng.random() < 0.5)
        return machine.mend_zookeeper

    def stop_zookeeper(self, machine: Machine) -> End | None:
        zookeeper = self.cluster.zookeeper
        if not zookeeper.available:
            return None
        zookeeper.stop()
        return self.rng.choice([zookeeper.start, zookeeper.wake])

    def slow_zookeeper(self, machine: Machine) -> End | None:
        """ZooKeeper delays a share of the writes, from a few to nearly all."""
        zookeeper = self.cluster.zookeeper
        if zookeeper.slow_share:
            return None
        zookeeper.slow_share = self.rng.choice([0.02, 0.2, 0.8])
        zookeeper.slow_ms_max = self.rng.choice([200.0, 1000.0, 4000.0])
        self._world.trace(
            "zookeeper", f"takes up to {zookeeper.slow_ms_max} ms for a share of {zookeeper.slow_share}"
        )

        def end() -> None:
            zookeeper.slow_share = 0.0

        return end

    def change_zookeeper_leader(self, machine: Machine) -> End | None:
        """ZooKeeper loses its leader, and answers no request until the other servers have elected a new
        one."""
        zookeeper = self.cluster.zookeeper
        if not zookeeper.available or len(zookeeper.up()) < len(zookeeper.servers):
            return None
        lost, back_s = zookeeper.leader, self.rng.uniform(0.0, 8.0)
        zookeeper.lose_leader()

        def end() -> None:
            zookeeper.start()
            self._world.clock.callLater(back_s, zookeeper.restore, lost)

        return end

    def lose_zookeeper_server(self, machine: Machine) -> End | None:
        """ZooKeeper loses a follower. Its clients connect to the other servers and keep their sessions."""
        zookeeper = self.cluster.zookeeper
        if not zookeeper.available or len(zookeeper.up()) < len(zookeeper.servers):
            return None
        lost = self.rng.choice([server for server in zookeeper.servers if server is not zookeeper.leader])
        zookeeper.lose_server(lost)
        return lambda: zookeeper.restore(lost)

    def lag_zookeeper_server(self, machine: Machine) -> End | None:
        """ZooKeeper's followers apply the leader's transactions late, so that their clients read older
        states."""
        zookeeper = self.cluster.zookeeper
        followers = [server for server in zookeeper.servers if server is not zookeeper.leader]
        lagging = self.rng.sample(followers, self.rng.randint(1, len(followers)))
        ms_max = self.rng.choice([100.0, 1000.0, 4000.0])
        for server in lagging:
            self._world.trace("zookeeper", f"server {server.number} lags by up to {ms_max} ms")
            server.lag(ms_max)

        def end() -> None:
            for server in lagging:
                server.lag(0.0)

        return end

    def burst_zookeeper(self, machine: Machine) -> End | None:
        """ZooKeeper's delay changes abruptly and often, between none and several seconds."""
        zookeeper, rng = self.cluster.zookeeper, self.rng
        usual_ms = self._story.plan.zookeeper_delay_ms_max
        if zookeeper.delay_ms_max != usual_ms:
            return None
        is_over = False

        def change() -> None:
            if not is_over and self._story.is_faulty:
                zookeeper.delay_ms_max = rng.choice([0.0, 300.0, 3000.0])
                self._world.clock.callLater(rng.uniform(0.05, 1.0), change)

        def end() -> None:
            nonlocal is_over
            is_over = True
            zookeeper.delay_ms_max = usual_ms

        change()
        return end

    def break_zookeeper(self, machine: Machine) -> End | None:
        """Connections to ZooKeeper break during writes. Either the write is lost, or only its answer."""
        zookeeper = self.cluster.zookeeper
        if zookeeper.break_share:
            return None
        zookeeper.break_share = self.rng.choice([0.05, 0.3])
        self._world.trace("zookeeper", f"loses connections at a share of {zookeeper.break_share} of writes")

        def end() -> None:
            zookeeper.break_share = 0.0

        return end

    def rejoin_slowly(self, machine: Machine) -> End | None:
        """A broker is killed, or its machine loses power again and again, and joins its in-sync sets again,
        while ZooKeeper is slow and the leaders' AlterPartition requests are lost, delayed, repeated or left
        without an answer."""
        zookeeper, meddled, api_key = self.cluster.zookeeper, self.cluster.network.meddled, _MEDDLED[0].key
        if zookeeper.slow_share or api_key in meddled or len(self.cluster.machines) == 1:
            return None
        machine = self._follower_of_controller(machine)
        if not machine.is_running:
            return None
        rng, is_over = self.rng, False

        def fall() -> None:
            if is_over or not self._story.is_faulty:
                return
            if machine.is_up and self._may_lose_data(machine, active=1):
                self._lose_power(machine)
                self._world.clock.callLater(rng.uniform(0.1, 1.0), self._while_faulty, machine.start)
            self._world.clock.callLater(rng.uniform(0.2, 3.0), fall)

        if rng.random() < _FALLS_AGAIN_SHARE and self._may_lose_data(machine):
            fall()
        else:
            machine.kill()
            self._world.clock.callLater(rng.uniform(0.5, 2.0), machine.start)
        zookeeper.slow_share = self.rng.choice([0.5, 1.0])
        zookeeper.slow_ms_max = self.rng.choice([1000.0, 3000.0])
        meddled[api_key] = 0.8
        self._world.trace("zookeeper", "is slow, and proposed in-sync sets are lost, late or unanswered")

        def end() -> None:
            nonlocal is_over
            is_over = True
            machine.start()
            zookeeper.slow_share = 0.0
            meddled.pop(api_key, None)

        return end

    def remove_registration(self, machine: Machine) -> End | None:
        """An administrator deletes /brokers/ids/N while the session of broker N is still valid."""
        zookeeper, path = self.cluster.zookeeper, broker_path(machine.broker_id)
        if not zookeeper.exists(path):
            return None
        self._world.trace("admin", f"deletes {path}")
        zookeeper.write([Delete(path)], 0)
        return lambda: None

    # The network

    def meddle(self, machine: Machine) -> End | None:
        """Requests of one kind between brokers are lost, delayed, repeated or left without an answer."""
        meddled = self.cluster.network.meddled
        api_key = self.rng.choice(_MEDDLED).key
        if api_key in meddled:
            return None
        meddled[api_key] = self.rng.choice([0.2, 0.8])
        self._world.trace("network", f"troubles {meddled[api_key]:.0%} of requests {api_key}")

        def end() -> None:
            meddled.pop(api_key, None)

        return end

    def isolate(self, machine: Machine) -> End | None:
        """Cut a machine off from the other brokers, in both directions or in one."""
        others = [other.name for other in self.cluster.machines if other is not machine]
        out, back = self.rng.choice([(True, True), (True, False), (False, True)])
        for other in others:
            self._cut(machine.name, other, out=out, back=back)
        return self.cluster.network.heal

    def cut_pair(self, machine: Machine) -> End | None:
        others = [other for other in self.cluster.machines if other is not machine]
        if not others:
            return None
        other = self.rng.choice(others)
        out, back = self.rng.choice([(True, True), (True, False), (False, True)])
        self._cut(machine.name, other.name, out=out, back=back)
        return self.cluster.network.heal

    def cut_clients(self, machine: Machine) -> End | None:
        for client in self._story.clients:
            if self.rng.random() < 0.5:
                self._cut(machine.name, client.name, out=True, back=self.rng.random() < 0.5)
        return self.cluster.network.heal

    def _cut(self, one: str, other: str, *, out: bool, back: bool) -> None:
        self._world.trace("network", f"{one} {'<'[not back :]}-{'>'[not out :]} {other} is cut")
        if out:
            self.cluster.network.cut(one, other)
        if back:
            self.cluster.network.cut(other, one)

    def storm(self, machine: Machine) -> End | None:
        network = self.cluster.network
        before = network.weather
        network.weather = Weather(
            delay_ms_max=self.rng.choice([5.0, 50.0]), slow_share=0.05, slow_ms_max=1000.0, break_share=0.02
        )

        def calm() -> None:
            network.weather = before

        return calm


def _coordinates_transactions(machine: Machine) -> bool:
    return any(
        partition.topic == TRANSACTIONS_TOPIC and isinstance(partition.role, Leadership)
        for partition in machine.partitions()
    )


def _has_sound_disks(machine: Machine) -> bool:
    return not (machine.disk.unmounted or machine.disk.is_failing or machine.disk.is_bounded)


POWER_LOSS = Kind("power loss", 10, (0.5, 9.0), Faults.lose_power)
KINDS = (
    Kind("kill", 20, (0.0, 9.0), Faults.kill),
    Kind("stop", 8, (0.5, 6.0), Faults.stop),
    Kind("pause", 12, (0.2, 12.0), Faults.pause),
    Kind("struck controller", 10, (8.0, 20.0), Faults.strike_controller),
    Kind("struck leader", 10, (8.0, 20.0), Faults.strike_leader),
    Kind("rack failure", 5, (4.0, 14.0), Faults.fail_rack),
    POWER_LOSS,
    Kind("power loss in outage", 6, (6.5, 8.0), Faults.lose_power_in_outage),
    Kind("unrecorded power loss", 6, (3.0, 9.0), Faults.lose_power_unrecorded),
    Kind("left behind", 8, (6.0, 14.0), Faults.leave_behind),
    Kind("last replica without power", 7, (0.0, 0.0), Faults.lose_last_power),
    Kind("struck disk", 12, (2.0, 10.0), Faults.strike_disk),
    Kind("wrong clock", 3, (0.0, 0.0), Faults.set_clock),
    Kind("stepped clock", 4, (0.0, 0.0), Faults.step_clock),
    Kind("jittery clock", 3, (1.0, 10.0), Faults.jitter_clock),
    Kind("new disks", 3, (0.5, 9.0), Faults.wipe),
    Kind("unmounted disk", 8, (3.0, 12.0), Faults.unmount),
    Kind("bit rot", 15, (0.0, 0.0), Faults.rot),
    Kind("failed directory", 5, (1.0, 8.0), Faults.fail_directory),
    Kind("read-only disk", 5, (1.0, 8.0), Faults.make_read_only),
    Kind("old disks", 5, (1.0, 8.0), Faults.go_back),
    Kind("full disk", 5, (2.0, 8.0), Faults.fill_up),
    Kind("ZooKeeper cut", 12, (0.01, 12.0), Faults.cut_off_zookeeper),
    Kind("ZooKeeper outage", 3, (0.5, 15.0), Faults.stop_zookeeper),
    Kind("removed registration", 5, (0.0, 0.0), Faults.remove_registration),
    Kind("slow ZooKeeper", 8, (1.0, 10.0), Faults.slow_zookeeper),
    Kind("ZooKeeper leader change", 8, (0.2, 5.0), Faults.change_zookeeper_leader),
    Kind("ZooKeeper server lost", 5, (0.5, 8.0), Faults.lose_zookeeper_server),
    Kind("ZooKeeper server behind", 10, (2.0, 12.0), Faults.lag_zookeeper_server),
    Kind("ZooKeeper bursts", 5, (1.0, 6.0), Faults.burst_zookeeper),
    Kind("broken ZooKeeper connections", 8, (1.0, 10.0), Faults.break_zookeeper),
    Kind("meddled requests", 10, (1.0, 10.0), Faults.meddle),
    Kind("slow rejoining", 12, (4.0, 15.0), Faults.rejoin_slowly),
    Kind("isolation", 8, (0.2, 10.0), Faults.isolate),
    Kind("network cut", 8, (0.2, 10.0), Faults.cut_pair),
    Kind("client cut", 5, (0.2, 8.0), Faults.cut_clients),
    Kind("storm", 6, (1.0, 8.0), Faults.storm),
)
_KINDS_BY_NAME = {kind.name: kind for kind in KINDS}
