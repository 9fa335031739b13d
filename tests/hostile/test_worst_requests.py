"""The costliest requests of every API, against a real broker: what they may cost a broker and its clients."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast_log.protocol.api import Api
from tests.hostile.attack import Target, memory_bytes
from tests.hostile.furnished import Furniture, furnish, is_furnished, probed_broker
from tests.hostile.generator import Names, World, served_apis, variants
from tests.hostile.neighbour import Kind, running_neighbour
from tests.hostile.probe import Probe, Turns
from tests.hostile.report import GROWTH_BYTES_MAX, TURN_MS_MAX
from tests.hostile.sending import idle_connections, is_serving, measured, repeated
from tests.integration.waiting import until

BUSY_TURN_MS_MAX = 2 * TURN_MS_MAX
"""Where other processes share the processor, they take the caches from the broker, and its processor time is
up to twice that of a quiet machine, for which the limit is."""
ATTEMPTS = 20
"""A request that takes a long turn by itself takes it each time. What others do to the broker passes."""
TIMEOUT_S = 2.0
"""So long are answers waited for that wait for other clients. What the broker does later is measured as well:
it takes two turns before the measurement ends."""
REQUEST_BYTES = 1 << 20
FURNITURE = Furniture(partitions=400, topics=100, groups=40)
IDLE = 200
LISTING = ("Metadata", "DescribeConfigs", "OffsetFetch")


@dataclass(slots=True)
class Attacked:
    """A broker, and what it has."""

    target: Target
    world: World

    def refurnish(self) -> None:
        """Create again what requests have deleted."""
        if not is_furnished(self.target.broker, self.world):
            self.world = furnish(self.target.broker, FURNITURE)


@pytest.fixture(scope="module")
def attacked(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("hostile")
    gc.disable()  # Requests are built of many objects, none of them in a cycle.
    try:
        with probed_broker(directory, f"{zookeeper_server}/{directory.name}") as target:
            yield Attacked(target, furnish(target.broker, FURNITURE))
            print(f"--- log of the broker\n{target.broker.log[-8000:]}")
    finally:
        gc.enable()


@pytest.mark.parametrize("api", served_apis(), ids=lambda api: api.name)
def test_no_request_takes_a_long_turn_or_much_memory(attacked: Attacked, api: Api) -> None:
    attacked.refurnish()
    for variant in variants(api, is_short=True):
        if variant.names is Names.UNKNOWN and variant.shape == "many in many":
            continue  # It has found least, and the default run is to be short.
        found = measured(
            attacked.target,
            attacked.world,
            api,
            api.max_version,
            variant,
            REQUEST_BYTES,
            BUSY_TURN_MS_MAX,
            timeout_s=TIMEOUT_S,
            attempts=ATTEMPTS,
        )
        assert found.is_within(BUSY_TURN_MS_MAX), f"{found}\n{found.cost.where}"
    assert is_serving(attacked.target)


@pytest.mark.parametrize("name", LISTING)
def test_requests_whose_answers_nobody_reads_take_little_memory(attacked: Attacked, name: str) -> None:
    attacked.refurnish()
    target, world = attacked.target, attacked.world
    (api,) = [each for each in served_apis() if each.name == name]
    variant = next(variants(api, is_short=True))
    with idle_connections(target, IDLE):
        found = measured(target, world, api, api.max_version, variant, REQUEST_BYTES)
        cost = repeated(target, found, connections=3, reads=False, bytes_max=4 << 20)
    assert cost.grown_bytes <= GROWTH_BYTES_MAX, f"{name}: {cost}"
    assert is_serving(target)


@pytest.mark.parametrize("kind", Kind)
def test_a_neighbour_notes_its_rounds_and_those_that_the_broker_does_not_answer(
    attacked: Attacked, tmp_path: Path, kind: Kind
) -> None:
    broker = attacked.target.broker
    port = broker.port if kind is Kind.CLIENT else broker.brokers_port
    with running_neighbour(tmp_path, port, kind) as neighbour:
        assert neighbour.pace(0, time.monotonic()).failed == 0
        broker.pause()
        try:
            now_s = time.monotonic()
            assert neighbour.pace(now_s, now_s, wait_s=0.2).failed == 1
        finally:
            broker.resume()
        now_s = time.monotonic()
        assert neighbour.pace(now_s, now_s).failed == 0


def test_the_broker_starts_again_after_all_of_them(attacked: Attacked) -> None:
    target = attacked.target
    target.broker.restart()
    assert is_serving(target)
    assert memory_bytes(target.broker.pid, "VmRSS") < GROWTH_BYTES_MAX


# -- the probe itself ----------------------------------------------------------------------------------------


class Poller:
    """Finds events at once, or after a wait."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    def poll(self) -> None:
        time.sleep(self._wait_s)


class Reactor:
    """Looks for events again and again in one iteration, as the broker's does."""

    def __init__(self, work_s: float, wait_s: float = 0) -> None:
        self._work_s = work_s
        self._poller = Poller(wait_s)

    def _work(self) -> None:
        ends_s = time.thread_time() + self._work_s
        while time.thread_time() < ends_s:
            pass

    def turn(self, count: int) -> None:
        for _ in range(count):
            self._poller.poll()
            self._work()
        self._poller.poll()


class Probed(NamedTuple):
    """A probe in this process, and what it has seen."""

    turns: Turns
    probe: Probe


@pytest.fixture
def probed(tmp_path: Path) -> Iterator[Probed]:
    made = Probed(Turns(tmp_path / "turns"), Probe(str(tmp_path / "turns")))
    yield made
    made.probe.stop()


def test_the_probe_sees_a_long_turn_and_where_it_was(probed: Probed) -> None:
    turns, probe = probed
    reactor = Reactor(work_s=2 * TURN_MS_MAX / 1000)
    probe.watch(reactor)

    def is_seen() -> bool:
        turns.reset()
        reactor.turn(1)
        return "_work" in turns.where

    until(is_seen)  # A thread looks now and then: on a busy machine it may come too late for a turn.
    assert turns.longest_ms >= TURN_MS_MAX
    turns.reset()
    assert (turns.longest_ms, turns.where) == (0, "")


def test_the_probe_does_not_count_time_in_which_a_turn_waits(probed: Probed) -> None:
    turns, probe = probed
    reactor = Reactor(work_s=0, wait_s=0.1)
    probe.watch(reactor)
    reactor.turn(3)
    assert turns.count == 4
    assert turns.longest_ms < TURN_MS_MAX


def test_the_probe_does_not_add_up_turns_that_follow_each_other_without_a_wait(probed: Probed) -> None:
    turns, probe = probed
    reactor = Reactor(work_s=TURN_MS_MAX / 1000 / 5)
    probe.watch(reactor)
    reactor.turn(20)
    assert turns.count == 21
    assert turns.longest_ms < 2 * TURN_MS_MAX
