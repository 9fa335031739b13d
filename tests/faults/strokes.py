"""Functions that make each fault and then undo it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from broker.tools.broker_process import BackgroundBroker
from coordinator.tools.zookeeper_process import ZooKeeperProcess
from tests.faults.cells import Cell, Fault, Role
from tests.faults.outage import lose_zookeeper
from tests.faults.scene import BROKERS, Scene

BOUNCES = 5
_AWAY_S = 3.0
"""Time that a stopped or killed broker stays down after it has left the cluster."""


def strike(scene: Scene, cell: Cell, fault_s: float) -> None:
    """Make the cell's fault, and return when it has been undone. `fault_s` is the length of a pause, cut or
    outage."""
    if cell.role is Role.ZOOKEEPER:
        _ZOOKEEPER_STROKES[cell.fault](scene, fault_s)
    else:
        _STROKES[cell.fault](scene, cell.role, fault_s)


def _clean_stop(scene: Scene, role: Role, fault_s: float) -> None:
    brokers = scene.struck(role)
    for broker in brokers:
        broker.stop()
    time.sleep(_AWAY_S)
    _start(brokers)


def _kill(scene: Scene, role: Role, fault_s: float) -> None:
    brokers = scene.struck(role)
    for broker in brokers:
        broker.kill()
    for broker in brokers:
        scene.view.wait_until_gone(broker.broker_id)
    time.sleep(_AWAY_S)
    _start(brokers)


def _pause(scene: Scene, role: Role, fault_s: float) -> None:
    brokers = scene.struck(role)
    for broker in brokers:
        broker.pause()
    time.sleep(fault_s)
    for broker in brokers:
        broker.resume()


def _bounce(scene: Scene, role: Role, fault_s: float) -> None:
    """Stop and start brokers repeatedly, without waiting until their replicas are in sync again."""
    for _ in range(BOUNCES):
        brokers = scene.struck(role)
        for broker in brokers:
            broker.stop()
        _start(brokers)
        scene.write_more()


def _cut(scene: Scene, role: Role, fault_s: float) -> None:
    brokers = scene.struck(role)
    for broker in brokers:
        scene.network.cut(broker.broker_id, broker.pid)
    time.sleep(fault_s)
    for broker in brokers:
        scene.network.heal(broker.broker_id)


def _start(brokers: Sequence[BackgroundBroker]) -> None:
    for broker in brokers:
        broker.start()
    for broker in brokers:
        broker.wait_ready(BROKERS)


_STROKES: Mapping[Fault, Callable[[Scene, Role, float], None]] = {
    Fault.CLEAN_STOP: _clean_stop,
    Fault.KILL: _kill,
    Fault.PAUSE: _pause,
    Fault.BOUNCE: _bounce,
    Fault.CUT: _cut,
}


def _restart_zookeeper(scene: Scene, fault_s: float) -> None:
    """Kill the server and start it again at once, so that sessions survive."""
    (server,) = scene.zookeepers
    server.restart()


def _pause_zookeeper(scene: Scene, fault_s: float) -> None:
    """Pause the server. Sessions expire if `fault_s` is longer than their timeout."""
    (server,) = scene.zookeepers
    server.pause()
    time.sleep(fault_s)
    server.resume()


def _change_zookeeper_leader(scene: Scene, fault_s: float) -> None:
    leader = next(server for server in scene.zookeepers if server.leads)
    leader.kill()
    others = [server for server in scene.zookeepers if server is not leader]
    _wait_for_leader(others)
    scene.write_more()
    leader.start()
    leader.wait_ready()


def _wait_for_leader(servers: Sequence[ZooKeeperProcess], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not any(server.leads for server in servers):
        assert time.monotonic() < deadline, f"the ensemble elected no leader within {timeout_s:.0f} s"
        time.sleep(0.1)


_ZOOKEEPER_STROKES: Mapping[Fault, Callable[[Scene, float], None]] = {
    Fault.RESTART: _restart_zookeeper,
    Fault.PAUSE: _pause_zookeeper,
    Fault.LEADER_CHANGE: _change_zookeeper_leader,
    Fault.OUTAGE: lose_zookeeper,
}
