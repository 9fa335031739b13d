"""Functions that make each fault and then undo it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.broker.tools.relays import Relays
from holdfast_log.coordinator.tools.zookeeper_process import ZooKeeperProcess
from tests.faults.cells import Cell, Fault, Role
from tests.faults.outage import lose_zookeeper
from tests.faults.scene import BROKERS, WAIT_S, Scene

BOUNCES = 5
_AWAY_S = 3.0
"""Time that a stopped or killed broker stays down after it has left the cluster."""
_HOUR_S = 3600.0
_NO_SPACE = "No space left on device"
_LOST_DIRECTORY = re.compile(r"set log\.dirs\.lost=(\S+)")


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
        scene.view.wait_until_gone(broker.broker_id, WAIT_S)
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


def _cut_from_zookeeper(scene: Scene, role: Role, fault_s: float) -> None:
    """Cut a broker off from ZooKeeper for longer than its session. Brokers and clients still reach it, so a
    client that asks only this broker for the leader may write nothing until the cut is healed."""
    (broker,) = scene.struck(role)
    network = _relays(scene)
    network.cut_from_zookeeper(broker.broker_id)
    began = time.monotonic()
    scene.view.wait_until_gone(broker.broker_id, WAIT_S)
    time.sleep(max(0.0, began + fault_s - time.monotonic()))
    network.heal(broker.broker_id)


def _step_clock(scene: Scene, role: Role, fault_s: float) -> None:
    """Set a broker's clock back by an hour, then an hour ahead, then right. After each step a follower is cut
    off from the other brokers, so that the leader must notice in time that the follower lags behind."""
    (broker,) = scene.struck(role)
    machine = scene.machine_of(broker)
    network = _relays(scene)
    for ahead_s in (-_HOUR_S, _HOUR_S, 0.0):
        machine.set_clock(ahead_s)
        scene.write_more()
        (follower,) = scene.struck(Role.FOLLOWER)
        network.cut_from_peers(follower.broker_id, follower.pid)
        scene.write_more()
        network.heal(follower.broker_id)
        scene.wait_until_whole()


def _fill_disk(scene: Scene, role: Role, fault_s: float) -> None:
    """Leave no space on a broker's disk. A broker that ends is started again once there is space."""
    (broker,) = scene.struck(role)
    machine = scene.machine_of(broker)
    machine.fill_disk()
    began = time.monotonic()
    while _NO_SPACE not in broker.log:
        assert time.monotonic() < began + WAIT_S, "the broker has not noticed that its disk is full"
        time.sleep(0.1)
    scene.write_more()
    time.sleep(max(0.0, began + fault_s - time.monotonic()))
    machine.make_room()
    if not broker.running:
        _start([broker])


def _empty_disk(scene: Scene, role: Role, fault_s: float) -> None:
    """Kill a broker, and start it on an empty disk. It must refuse to start until the operator declares its
    log directory lost."""
    (broker,) = scene.struck(role)
    others = _leave_alone(scene, broker) if role is Role.LAST_IN_SYNC else []
    broker.kill()
    scene.machine_of(broker).empty_disk()
    broker.start()
    assert broker.wait() != 0, "the broker served with an empty disk"
    (lost,) = _LOST_DIRECTORY.findall(broker.log)
    broker.properties["log.dirs.lost"] = lost
    broker.start()
    if others:
        broker.wait_ready()
        time.sleep(_AWAY_S)
    _start(others)
    broker.wait_ready(BROKERS)


def _lose_power(scene: Scene, role: Role, fault_s: float) -> None:
    """Kill brokers, remove what they have not synced, and start them after their sessions have expired."""
    brokers = scene.struck(role)
    others = _leave_alone(scene, brokers[0]) if role is Role.LAST_IN_SYNC else []
    for broker in brokers:
        broker.kill()
    for broker in brokers:
        scene.machine_of(broker).lose_power()
    for broker in brokers:
        scene.view.wait_until_gone(broker.broker_id, WAIT_S)
    time.sleep(_AWAY_S)
    _start([*brokers, *others])


def _leave_alone(scene: Scene, leader: BackgroundBroker) -> list[BackgroundBroker]:
    """Kill the other brokers, and return them once they have left every in-sync set."""
    others = [broker for broker in scene.brokers if broker is not leader]
    for broker in others:
        broker.kill()
    scene.wait_for_in_sync([leader.broker_id])
    return others


def _relays(scene: Scene) -> Relays:
    assert isinstance(scene.network, Relays), "only relays cut some of a broker's connections"
    return scene.network


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
    Fault.ZOOKEEPER_CUT: _cut_from_zookeeper,
    Fault.CLOCK_STEP: _step_clock,
    Fault.DISK_FULL: _fill_disk,
    Fault.EMPTY_DISK: _empty_disk,
    Fault.POWER_LOSS: _lose_power,
    Fault.POWER_LOSS_FLUSHED: _lose_power,
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


def _wait_for_leader(servers: Sequence[ZooKeeperProcess], timeout_s: float = WAIT_S) -> None:
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
