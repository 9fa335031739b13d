"""The faults of a check, each of one broker, one after the other.

Faults last longer than the brokers' ZooKeeper sessions (3 s) and the owners' sessions (3 s) together, so that
other brokers take over the partitions and names of the broker, and then other clients are granted them.
"""

from __future__ import annotations

import enum
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from holdfast_log.checker.calls import FaultSpan
from holdfast_log.checker.cluster import BROKERS, COORDINATION, TRANSACTIONS, CheckedCluster
from holdfast_log.checker.recorder import Recorder
from holdfast_log.clients.admin import Admin, ElectionType
from holdfast_log.protocol.topic_partition import TopicPartition

_AWAY_S = (0.0, 6.0)
"""How long a killed broker stays down: both shorter and longer than its ZooKeeper session."""
_FAULT_S = (9.0, 13.0)
_CLOCK_S = 4.0
_HOUR_S = 3600.0
_CALM_S = 2.0
_LOOK_S = 0.05
_COORDINATOR_SHARE = 0.7
"""Share of the cuts from ZooKeeper that strike the broker which decides about all names."""
_BROKER_IDS = range(1, BROKERS + 1)


class BrokerFault(enum.StrEnum):
    """What can happen to a broker."""

    KILL = "kill"
    STOP = "stop"
    CUT_PEERS = "cut-peers"
    CUT_ZOOKEEPER = "cut-zookeeper"
    CLOCK = "clock"
    MOVE = "move"
    RESTART = "restart"


ALL = "all"
NONE = "none"


def parse_faults(text: str) -> tuple[BrokerFault, ...]:
    """The faults that `all`, `none` or a list with commas names. Raises ValueError for an unknown one."""
    if text == ALL:
        return tuple(BrokerFault)
    if text == NONE:
        return ()
    return tuple(BrokerFault(name.strip()) for name in text.split(","))


def fault_order(faults: Collection[BrokerFault], rng: random.Random) -> Iterator[BrokerFault]:
    """Yield each kind of fault once before any comes again; without end, or nothing if there are no `faults`.

    A short check has time for three or four of the kinds. The first one is a cut from ZooKeeper, if that is
    among them: no other lets a broker that was replaced answer its clients for seconds.
    """
    left = sorted(faults)
    if BrokerFault.CUT_ZOOKEEPER in left:
        left.remove(BrokerFault.CUT_ZOOKEEPER)
        yield BrokerFault.CUT_ZOOKEEPER
    while faults:
        yield from rng.sample(left, len(left))
        left = sorted(faults)


@dataclass(frozen=True, slots=True)
class _Strike:
    """A fault that is being made to the broker with this index. The load uses `places`."""

    cluster: CheckedCluster
    index: int
    rng: random.Random
    places: list[TopicPartition]


class FaultPlayer:
    """Makes faults to a cluster, and records them."""

    def __init__(
        self, cluster: CheckedCluster, recorder: Recorder, rng: random.Random, say: Callable[[str], object]
    ) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._rng = rng
        self._say = say

    def play(self, faults: Collection[BrokerFault], places: list[TopicPartition], until_s: float) -> None:
        """Make faults in the order of `fault_order` until the recorder's clock shows `until_s`.

        The last one may end later. Waits after each until all replicas of `places` are in sync.
        """
        order = fault_order(faults, self._rng)
        while (left_s := until_s - self._recorder.now_s()) > 0:
            fault = next(order, None)
            if fault is None:
                time.sleep(left_s)
                continue
            self._make(fault, self._cluster.leader(self._struck(fault, places)) - 1, places)
            self._cluster.wait_until_whole(places)
            time.sleep(_CALM_S)

    def _struck(self, fault: BrokerFault, places: list[TopicPartition]) -> TopicPartition:
        """A partition whose leader is struck: a broker is so the more often, the more it decides about."""
        is_about_owners = fault is BrokerFault.CUT_ZOOKEEPER and self._rng.random() < _COORDINATOR_SHARE
        deciding = [COORDINATION, *(place for place in places if place == TRANSACTIONS)]
        return COORDINATION if is_about_owners else self._rng.choice([*places, *deciding, *deciding])

    def _make(self, fault: BrokerFault, index: int, places: list[TopicPartition]) -> None:
        began_s = self._recorder.now_s()
        _MAKERS[fault](_Strike(self._cluster, index, self._rng, places))
        span = FaultSpan(fault, index + 1, began_s, self._recorder.now_s())
        self._recorder.add(span)
        self._say(f"{span.began_s:6.1f} s to {span.ended_s:6.1f} s: {fault} of broker {span.broker}")


def _kill(strike: _Strike) -> None:
    broker = strike.cluster.brokers[strike.index]
    broker.kill()
    time.sleep(strike.rng.uniform(*_AWAY_S))
    broker.start()


def _stop(strike: _Strike) -> None:
    broker = strike.cluster.brokers[strike.index]
    broker.pause()
    try:
        time.sleep(strike.rng.uniform(*_FAULT_S))
    finally:
        broker.resume()


def _cut_from_peers(strike: _Strike) -> None:
    broker = strike.cluster.brokers[strike.index]
    strike.cluster.relays.cut_from_peers(broker.broker_id, broker.pid)
    _heal_later(strike)


def _cut_from_zookeeper(strike: _Strike) -> None:
    strike.cluster.relays.cut_from_zookeeper(strike.cluster.brokers[strike.index].broker_id)
    _heal_later(strike)


def _heal_later(strike: _Strike) -> None:
    try:
        time.sleep(strike.rng.uniform(*_FAULT_S))
    finally:
        strike.cluster.relays.heal(strike.cluster.brokers[strike.index].broker_id)


def _step_clock(strike: _Strike) -> None:
    """Set the time of day back by an hour, then an hour ahead, or the other way round, then right."""
    machine = strike.cluster.machines[strike.index]
    ahead_s = strike.rng.choice((-_HOUR_S, _HOUR_S))
    try:
        for step_s in (ahead_s, -ahead_s):
            machine.set_clock(step_s)
            time.sleep(_CLOCK_S)
    finally:
        machine.set_clock(0.0)


def _move(strike: _Strike) -> None:
    """Move all that the broker leads to another one."""
    leader = strike.index + 1
    places = [place for place in _moved(strike) if strike.cluster.leader(place) == leader]
    _lead(strike, places, strike.rng.choice([each for each in _BROKER_IDS if each != leader]))


def _restart(strike: _Strike) -> None:
    """Stop the broker in order and start it again, then have it lead everything."""
    broker = strike.cluster.brokers[strike.index]
    broker.stop()
    broker.start()
    strike.cluster.wait_until_whole(strike.places)
    _lead(strike, _moved(strike), broker.broker_id)


def _moved(strike: _Strike) -> list[TopicPartition]:
    return [*strike.places, COORDINATION]


def _lead(strike: _Strike, places: list[TopicPartition], leader: int) -> None:
    """Make a broker the preferred leader of partitions, and have it elected."""
    replicas = [leader, *(each for each in _BROKER_IDS if each != leader)]
    with Admin({"bootstrap.servers": strike.cluster.bootstrap}) as admin:
        admin.alter_partition_reassignments(dict.fromkeys(places, replicas))
        while admin.list_partition_reassignments(places):
            time.sleep(_LOOK_S)
        admin.elect_leaders(ElectionType.PREFERRED, places)


_MAKERS: Mapping[BrokerFault, Callable[[_Strike], None]] = {
    BrokerFault.KILL: _kill,
    BrokerFault.STOP: _stop,
    BrokerFault.CUT_PEERS: _cut_from_peers,
    BrokerFault.CUT_ZOOKEEPER: _cut_from_zookeeper,
    BrokerFault.CLOCK: _step_clock,
    BrokerFault.MOVE: _move,
    BrokerFault.RESTART: _restart,
}
