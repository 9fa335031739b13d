"""The faults of a check, each of one broker, one after the other.

Faults last longer than the brokers' ZooKeeper sessions (3 s) and the owners' sessions (3 s) together, so that
other brokers take over the partitions and names of the broker, and then other clients are granted them.
"""

from __future__ import annotations

import enum
import random
import time
from collections.abc import Callable, Collection, Mapping

from holdfast_log.checker.calls import FaultSpan
from holdfast_log.checker.cluster import COORDINATION, CheckedCluster
from holdfast_log.checker.recorder import Recorder
from holdfast_log.protocol.topic_partition import TopicPartition

_AWAY_S = (0.0, 6.0)
"""How long a killed broker stays down: both shorter and longer than its ZooKeeper session."""
_FAULT_S = (9.0, 13.0)
_CLOCK_S = 4.0
_HOUR_S = 3600.0
_CALM_S = 2.0


class BrokerFault(enum.StrEnum):
    """What can happen to a broker."""

    KILL = "kill"
    STOP = "stop"
    CUT_PEERS = "cut-peers"
    CUT_ZOOKEEPER = "cut-zookeeper"
    CLOCK = "clock"


ALL = "all"
NONE = "none"


def parse_faults(text: str) -> tuple[BrokerFault, ...]:
    """The faults that `all`, `none` or a list with commas names. Raises ValueError for an unknown one."""
    if text == ALL:
        return tuple(BrokerFault)
    if text == NONE:
        return ()
    return tuple(BrokerFault(name.strip()) for name in text.split(","))


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
        """Make faults, each kind once before any comes again, until the recorder's clock shows `until_s`.

        The last one may end later. Waits after each until all replicas of `places` are in sync.
        """
        order: list[BrokerFault] = []
        while (left_s := until_s - self._recorder.now_s()) > 0:
            if not faults:
                time.sleep(left_s)
                continue
            if not order:
                order = self._rng.sample(sorted(faults), len(faults))
            # A partition's leader, so that a broker is chosen the more often, the more it decides about.
            leads = self._rng.choice([*places, COORDINATION, COORDINATION])
            self._make(order.pop(), self._cluster.leader(leads) - 1)
            self._cluster.wait_until_whole(places)
            time.sleep(_CALM_S)

    def _make(self, fault: BrokerFault, index: int) -> None:
        began_s = self._recorder.now_s()
        _MAKERS[fault](self._cluster, index, self._rng)
        span = FaultSpan(fault, index + 1, began_s, self._recorder.now_s())
        self._recorder.add(span)
        self._say(f"{span.began_s:6.1f} s to {span.ended_s:6.1f} s: {fault} of broker {span.broker}")


def _kill(cluster: CheckedCluster, index: int, rng: random.Random) -> None:
    broker = cluster.brokers[index]
    broker.kill()
    time.sleep(rng.uniform(*_AWAY_S))
    broker.start()


def _stop(cluster: CheckedCluster, index: int, rng: random.Random) -> None:
    cluster.brokers[index].pause()
    try:
        time.sleep(rng.uniform(*_FAULT_S))
    finally:
        cluster.brokers[index].resume()


def _cut_from_peers(cluster: CheckedCluster, index: int, rng: random.Random) -> None:
    broker = cluster.brokers[index]
    cluster.relays.cut_from_peers(broker.broker_id, broker.pid)
    _heal_later(cluster, broker.broker_id, rng)


def _cut_from_zookeeper(cluster: CheckedCluster, index: int, rng: random.Random) -> None:
    broker_id = cluster.brokers[index].broker_id
    cluster.relays.cut_from_zookeeper(broker_id)
    _heal_later(cluster, broker_id, rng)


def _heal_later(cluster: CheckedCluster, broker_id: int, rng: random.Random) -> None:
    try:
        time.sleep(rng.uniform(*_FAULT_S))
    finally:
        cluster.relays.heal(broker_id)


def _step_clock(cluster: CheckedCluster, index: int, rng: random.Random) -> None:
    """Set the time of day back by an hour, then an hour ahead, or the other way round, then right."""
    machine = cluster.machines[index]
    ahead_s = rng.choice((-_HOUR_S, _HOUR_S))
    try:
        for step_s in (ahead_s, -ahead_s):
            machine.set_clock(step_s)
            time.sleep(_CLOCK_S)
    finally:
        machine.set_clock(0.0)


_MAKERS: Mapping[BrokerFault, Callable[[CheckedCluster, int, random.Random], None]] = {
    BrokerFault.KILL: _kill,
    BrokerFault.STOP: _stop,
    BrokerFault.CUT_PEERS: _cut_from_peers,
    BrokerFault.CUT_ZOOKEEPER: _cut_from_zookeeper,
    BrokerFault.CLOCK: _step_clock,
}
