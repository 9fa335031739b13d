"""Faults of many steps, which plans draw beside those of `tests.sim.faults`: each waits for one event after
another, and so makes a coincidence that random faults hardly ever make.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

from holdfast_log.broker.log.names import CLEANED, LOG
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.coordinator.znodes.controller import CONTROLLER
from holdfast_log.coordinator.zookeeper.interface import Delete
from holdfast_log.protocol.batches import split
from tests.sim.client import Client, Surroundings
from tests.sim.cluster import LOG_DIRECTORIES, Machine
from tests.sim.faults import LOOK_S, End, Faults, Kind
from tests.sim.lone_leader import leave_alone
from tests.sim.tenant import Tenant

_UNFOLLOWED_S = (2.5, 3.5)
"""Seconds for which a leader that nobody follows lives: longer than the session of an owner that sleeps, and
shorter than the time after which its followers leave the in-sync set."""
_ELECTION_S = 0.5
"""Seconds in which a controller is elected after the znode of the one before it was deleted."""
_STANDSTILL_SHARE = 0.3
_DIRECTORY_SHARE = 0.25
_MOVE_S = 0.2
_MOVE_CHANGES = 40
"""About how long the move of a small log takes, and how many changes of the disk."""
_ANSWERS_S = (2.0, 4.0)
"""Seconds for which a replaced leader goes on after the next one has granted what it guards."""


class LongFaults(Faults):
    """The faults of a plan, those of many steps among them."""

    @property
    def around(self) -> Surroundings:
        """What a client that takes part in a fault is constructed with."""
        return self._story.around

    def kind(self, name: str) -> Kind:
        return _LONG_BY_NAME.get(name) or super().kind(name)

    def take(self, steps: Iterator[None], *machines: Machine) -> End:
        """Take the steps of a fault, one after another. Whenever they yield, the next one has to wait. The
        end of the fault ends the steps, and starts these machines."""
        is_over = False

        def look() -> None:
            if is_over or not self._story.is_faulty:
                return
            for _ in steps:
                self._world.clock.callLater(LOOK_S, look)
                return

        def end() -> None:
            nonlocal is_over
            is_over = True
            self.cluster.network.heal()
            for machine in machines:
                machine.start()

        look()
        return end

    def strike_move(self, machine: Machine) -> End | None:
        """Wait until a broker moves a replica between its log directories. A few changes of its disk later
        the process ends, or the machine loses power where it may; or one of the directories fails."""
        if not machine.is_running or machine.disk.is_failing:
            return None
        take_end = self.take(self._moving_steps(machine))

        def end() -> None:
            take_end()
            machine.disk.spare()
            if machine.disk.is_failing:
                self._repair(machine)
            machine.start()

        return end

    def _moving_steps(self, machine: Machine) -> Iterator[None]:
        while not _moves(machine):
            yield
        rng = self.rng

        def struck() -> None:
            if rng.random() < 0.5 and self._may_lose_data(machine, active=1):
                self._lose_power(machine)
            else:
                machine.kill()

        if rng.random() < _DIRECTORY_SHARE:
            after_s, directory = rng.uniform(0.0, _MOVE_S), rng.choice(LOG_DIRECTORIES)
            fail = partial(machine.fail_directory, directory, only_writes=False)
            self._world.clock.callLater(after_s, self._while_faulty, fail)
        else:
            machine.disk.strike(rng.randrange(_MOVE_CHANGES), struck)

    def _roles_for(self, at: tuple[str, int]) -> tuple[Machine, Machine, Machine] | None:
        """The machines of a partition's leader, of the replica that leads next if the leader dies, and of the
        third replica. None if they are not all in sync and running."""
        state, topic = self.cluster.states().get(at), self.cluster.topics().get(at[0])
        if state is None or topic is None or len(state.isr) < 3 or state.leader not in state.isr:
            return None
        leader = self.cluster.machine(state.leader)
        replicas = topic.partitions[at[1]].replicas
        # The controller elects the first live in-sync replica.
        next_leader, follower = (
            self.cluster.machine(replica) for replica in replicas if replica != state.leader
        )
        if not all(each.is_running for each in (leader, next_leader, follower)):
            return None
        return leader, next_leader, follower

    def outdate_proposal(self, machine: Machine) -> End | None:
        """A follower restarts, and its leader proposes it as in sync while no message of the leader reaches
        the controller. The follower loses power and restarts, and cannot copy from the leader any more. Then
        the leader's proposal reaches the controller, which must refuse it, because it names the follower's
        earlier registration (KIP-903)."""
        follower = self._follower_of_controller(machine)
        controllers = [each for each in self.cluster.machines if each.is_controller]
        leaders = [each for each in self.cluster.machines if each not in (follower, *controllers)]
        if len(leaders) != 1 or not leaders[0].is_running or not follower.is_running:
            return None
        return self.take(self._steps_to_outdated_proposal(follower, leaders[0], controllers[0]), follower)

    def _steps_to_outdated_proposal(
        self, follower: Machine, leader: Machine, controller: Machine
    ) -> Iterator[None]:
        """The steps of `outdate_proposal`."""
        follower.kill()
        while not self._is_left_out(follower, leader):
            yield
        follower.start()
        while follower.broker_id not in self.cluster.broker_epochs():
            yield
        # The controller has not handled the registration yet, so the leader has proposed nothing.
        self._cut(leader.name, controller.name, out=True, back=False)
        while not self._is_proposed(follower, leader) or not self._may_lose_data(follower, active=1):
            yield
        self._lose_power(follower)
        self._cut(follower.name, leader.name, out=True, back=True)
        follower.start()
        while not self.cluster.is_start_recorded(follower) or not follower.partitions():
            yield
        self.cluster.network.mend(leader.name, controller.name)

    def _is_left_out(self, follower: Machine, leader: Machine) -> bool:
        """Whether the follower is not registered, and this leader leads a partition without it."""
        return follower.broker_id not in self.cluster.broker_epochs() and any(
            state.leader == leader.broker_id
            and follower.broker_id not in state.isr
            and (partition := leader.partition(at)) is not None
            and follower.broker_id in partition.replicas
            for at, state in self.cluster.states().items()
        )

    def _is_proposed(self, follower: Machine, leader: Machine) -> bool:
        """Whether this leader has proposed the follower as in sync, and knows no decision yet."""
        return any(
            isinstance(partition.role, Leadership)
            and partition.role.pending is not None
            and follower.broker_id in partition.role.pending
            for partition in leader.partitions()
        )

    def diverge(self, machine: Machine) -> End | None:
        """A leader is killed when one follower has copied a record and the other has not. If the other leads
        next, the first truncates its log. Then the new leader is killed too, so that the first one leads."""
        ats = sorted(self.cluster.states())
        owned = [(topic.name, 0) for topic in self._story.plan.topics if topic.is_owned]
        at = self.rng.choice([at for at in ats if at in owned] or ats)
        roles = self._roles_for(at)
        if roles is None:
            return None
        leader, next_leader, follower = roles
        return self.take(self._steps_to_divergence(at, leader, next_leader, follower), leader, next_leader)

    def _steps_to_divergence(
        self, at: tuple[str, int], leader: Machine, next_leader: Machine, follower: Machine
    ) -> Iterator[None]:
        """The steps of `diverge`."""
        self._cut(next_leader.name, leader.name, out=True, back=True)
        while not _end_of(next_leader, at) < _end_of(follower, at) == _end_of(leader, at):
            yield
        truncations = _truncations_of(follower, at)
        leader.kill()
        self.cluster.network.heal()
        while _truncations_of(follower, at) <= truncations:
            yield
        leader.start()
        next_leader.kill()

    def replace_unfollowed(self, machine: Machine) -> End | None:
        """A leader is killed when one follower has copied a record of an owner and the other has not. The
        other leads next, cut off from the first, and is killed too as soon as an owner was told its fence, or
        while the first is still in sync. So a replica leads that was never in touch with the leader before
        it, and it has records that this leader lacked. The former owner sleeps meanwhile."""
        owned = [(topic.name, 0) for topic in self._story.plan.topics if topic.is_owned]
        if not owned:
            return None
        sleeping: list[Client] = []
        end_steps = self.take(self._steps_to_unfollowed(owned[0], sleeping), *self.cluster.machines)

        def end() -> None:
            end_steps()
            _wake(sleeping)

        return end

    def _steps_to_unfollowed(self, at: tuple[str, int], sleeping: list[Client]) -> Iterator[None]:
        """The steps of `replace_unfollowed`. Owners that sleep are in `sleeping`."""
        followed_s = self.rng.uniform(*_UNFOLLOWED_S)
        roles = self._roles_for(at)
        while roles is None or not roles[1].is_controller or not _has_committed_all(at, *roles[:2]):
            if roles is not None and not roles[1].is_controller:
                # No other controller could reach the next leader.
                yield from self._remove_controller()
            yield
            roles = self._roles_for(at)
        # From now on the next leader knows that everything in its log is committed. While no replica follows
        # it, it commits nothing more.
        leader, next_leader, follower = roles
        self._cut(leader.name, next_leader.name, out=True, back=True)
        while not _end_of(next_leader, at) < _end_of(follower, at) == _end_of(leader, at):
            yield
        sleeping += self._pause_owners(at)
        leader.kill()
        self.cluster.network.heal()
        self._cut(next_leader.name, follower.name, out=True, back=True)
        while not self.cluster.decider(next_leader.address, at).is_current:
            yield
        known, until_s = self._grants_of(at), self._world.seconds() + followed_s
        while self._grants_of(at) == known and self._world.seconds() < until_s:
            yield
        next_leader.kill()
        self.cluster.network.heal()
        leader.start()
        while not self.cluster.decider(follower.address, at).is_current:
            yield
        _wake(sleeping)

    def replace_unnoticed(self, machine: Machine) -> End | None:
        """A leader is cut off from ZooKeeper and the other brokers, together with a client that owns a
        resource there. The next leader grants the resource to another client. The first leader and its client
        do not learn of that, and the client goes on asking. In some seeds the first leader stands still
        instead of losing ZooKeeper, and finds the client's requests when it continues."""
        if self._story.tenants is None:
            return None
        cut_off: list[Machine] = []
        end_steps = self.take(self._steps_to_unnoticed(cut_off))

        def end() -> None:
            end_steps()
            for each in cut_off:
                each.mend_zookeeper()
                each.resume()

        return end

    def _steps_to_unnoticed(self, cut_off: list[Machine]) -> Iterator[None]:
        """The steps of `replace_unnoticed`. The leader that is cut off is in `cut_off`."""
        rng = self.rng
        stands_still, answers_s = rng.random() < _STANDSTILL_SHARE, rng.uniform(*_ANSWERS_S)
        while (found := self._owned_at_a_leader(rng)) is None:
            yield
        leader, owner = found
        at, known = owner.at, self._grants_of(owner.at)
        cut_off.append(leader)
        self._part(leader, owner)
        if stands_still:
            leader.pause()
        else:
            leader.cut_off_zookeeper(silently=rng.random() < 0.5)
        others = [each for each in self.cluster.machines if each is not leader]
        while not any(self.cluster.decider(each.address, at).is_current for each in others):
            yield
        while self._grants_of(at) == known:
            yield
        yield from self._let_pass(answers_s)
        leader.resume()
        leader.mend_zookeeper()
        self.cluster.network.heal()

    def cut_compacted(self, machine: Machine) -> End | None:
        """A leader of a compacted topic is alone in sync, and its cleaner has copied records that nobody else
        has, when it is cut off from all others. One of them leads by an unclean election, the first leader
        truncates its log while the pass waits, and copies other records."""
        topics = [topic for topic in self._story.plan.topics if topic.is_compacted and topic.may_lose]
        if not topics:
            return None
        cut_off: list[Machine] = []
        end_steps = self.take(self._steps_to_cut_pass((topics[0].name, 0), cut_off), *self.cluster.machines)

        def end() -> None:
            end_steps()
            for each in cut_off:
                each.mend_zookeeper()

        return end

    def _steps_to_cut_pass(self, at: tuple[str, int], cut_off: list[Machine]) -> Iterator[None]:
        """The steps of `cut_compacted`. The leader that is cut off is in `cut_off`."""
        while (roles := self._roles_for(at)) is None or not _is_within_segment(at, *roles):
            yield
        leader, *others = roles
        shared = max(_end_of(other, at) for other in others)
        for other in others:
            other.kill()
        while not _has_compacted(leader, at, shared):
            yield
        truncations = _truncations_of(leader, at)
        cut_off.append(leader)
        for name in [*(other.name for other in others), *(client.name for client in self._story.clients)]:
            self._cut(leader.name, name, out=True, back=True)
        leader.cut_off_zookeeper()
        for other in others:
            other.start()
        while self.cluster.states()[at].leader not in [other.broker_id for other in others]:
            yield
        self.cluster.network.heal()
        leader.mend_zookeeper()
        while _truncations_of(leader, at) == truncations:
            yield

    def _owned_at_a_leader(self, rng: random.Random) -> tuple[Machine, Tenant] | None:
        """A running leader, with two followers that may replace it, and a client that owns something on its
        connection to it. None if there is none."""
        for tenant in rng.sample(self._tenants, len(self._tenants)):
            is_owner = tenant.grant is not None and not tenant.grant.is_shared
            roles = self._roles_for(self.cluster.home_of(tenant.at))
            if is_owner and roles is not None and not tenant.process.paused:
                leader = roles[0]
                if tenant.stands_on(leader.address):
                    return leader, tenant
        return None

    def _part(self, leader: Machine, owner: Tenant) -> None:
        """Cut the leader off from all machines but the owner's, and the owner from all but the leader's."""
        for other in self.cluster.machines:
            if other is not leader:
                self._cut(leader.name, other.name, out=True, back=True)
                self._cut(owner.name, other.name, out=True, back=True)
                # A connection that stays half-open would keep the owner waiting.
                owner.process.run(owner.drop, other.address)
        for client in self._story.clients:
            if client is not owner:
                self._cut(leader.name, client.name, out=True, back=True)

    def _remove_controller(self) -> Iterator[None]:
        """An administrator deletes /controller. The steps end when another broker may have the controller."""
        zookeeper = self.cluster.zookeeper
        if zookeeper.exists(CONTROLLER):
            self._world.trace("admin", f"deletes {CONTROLLER}")
            zookeeper.write([Delete(CONTROLLER)], 0)
        yield from self._let_pass(_ELECTION_S)

    def _let_pass(self, seconds: float) -> Iterator[None]:
        """A step that takes this long."""
        until_s = self._world.seconds() + seconds
        while self._world.seconds() < until_s:
            yield

    @property
    def _tenants(self) -> list[Tenant]:
        return self._story.tenants.tenants if self._story.tenants is not None else []

    def _grants_of(self, at: tuple[str, int]) -> int:
        """How many grants of a partition clients were told."""
        return sum(grant.place.at == at for grant in self._story.owned.grants)

    def _pause_owners(self, at: tuple[str, int]) -> list[Client]:
        """Pause the clients that own a partition. Returns them."""
        owners = [each for each in self._tenants if each.at == at and each.grant is not None]
        for owner in owners:
            self._world.trace(owner.name, "sleeps")
            owner.process.pause()
        return [*owners]


def _end_of(machine: Machine, at: tuple[str, int]) -> int:
    """The log end offset of the broker's replica of a partition; -1 without one."""
    partition = machine.partition(at)
    return -1 if partition is None else partition.log.log_end_offset


def _truncations_of(machine: Machine, at: tuple[str, int]) -> int:
    """How often the broker's process has truncated its replica of a partition; -1 without one."""
    partition = machine.partition(at)
    return -1 if partition is None else partition.log.truncations


def _is_within_segment(at: tuple[str, int], leader: Machine, *others: Machine) -> bool:
    """Whether all these machines have the same records of a partition, and the next ones will be in one file
    with the last of them."""
    partition = leader.partition(at)
    if partition is None or any(_end_of(other, at) != _end_of(leader, at) for other in others):
        return False
    return partition.log.log_end_offset >= partition.log.segments.active.base_offset + 2


def _has_compacted(machine: Machine, at: tuple[str, int], offset: int) -> bool:
    """Whether a pass of the machine's cleaner has copied records from `offset` on, and not replaced the
    files that had them yet."""
    partition = machine.partition(at)
    if partition is None:
        return False
    copies = machine.disk.contents(partition.log.directory, f"{LOG}{CLEANED}")
    return any(header.next_offset > offset for data in copies for header in split(data))


def _has_committed_all(at: tuple[str, int], *machines: Machine) -> bool:
    """Whether these machines have the same records of a partition, and know that all are committed."""
    replicas = [machine.partition(at) for machine in machines]
    return _end_of(machines[0], at) > 0 and all(
        replica is not None and replica.high_watermark == _end_of(machines[0], at) == _end_of(machine, at)
        for machine, replica in zip(machines, replicas, strict=True)
    )


def _wake(clients: Sequence[Client]) -> None:
    for client in clients:
        client.process.resume()


def _moves(machine: Machine) -> bool:
    node = None if machine.broker is None else machine.broker.node
    return node is not None and any(node.replication.moves)


STRUCK_MOVE = Kind("struck move", 0, (1.0, 5.0), LongFaults.strike_move)
OUTDATED_PROPOSAL = Kind("outdated proposal", 0, (13.0, 16.0), LongFaults.outdate_proposal)
DIVERGENCE = Kind("divergence", 0, (18.0, 24.0), LongFaults.diverge)
UNFOLLOWED_LEADER = Kind("unfollowed leader", 0, (17.0, 22.0), LongFaults.replace_unfollowed)
UNNOTICED_SUCCESSION = Kind("unnoticed succession", 0, (17.0, 22.0), LongFaults.replace_unnoticed)
CUT_COMPACTED = Kind("cut pass", 0, (24.0, 30.0), LongFaults.cut_compacted)
LONE_LEADER = Kind("lone leader", 0, (14.0, 18.0), leave_alone)
LONG_KINDS = (
    OUTDATED_PROPOSAL, DIVERGENCE, UNFOLLOWED_LEADER, UNNOTICED_SUCCESSION, CUT_COMPACTED, LONE_LEADER,
)  # fmt: skip
_LONG_BY_NAME = {kind.name: kind for kind in (*LONG_KINDS, STRUCK_MOVE)}
