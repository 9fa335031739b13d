"""What an event makes the controller do for very many partitions is divided: others are served in between."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.internet.task import Clock

from holdfast_log.coordinator.controller import deletions, leaders, requests, writes
from holdfast_log.coordinator.controller.effects import ControllerEffect, StateWrite
from holdfast_log.coordinator.controller.events import (
    BrokersChanged,
    ControllerEvent,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    TopicCreation,
)
from holdfast_log.coordinator.controller.writes import BATCH_SIZE, write_states
from holdfast_log.coordinator.znodes.topics import PartitionState, encode_partition_state
from holdfast_log.coordinator.zookeeper.interface import Stat
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.controller.machine import Machine
from tests.hostile.test_decoding_work import calls_of

PARTITIONS = 5_000
"""As many as one request may create."""
CALLS_MAX = 100_000
"""Between two effects. A call and what follows it takes 0.2 µs at most: these take 20 ms."""
ELECTIONS = 16_000
"""As many as one request may name."""
ELECTION_CALLS_MAX = 30_000
_MANY = 1 << 60


def calls_between_effects(machine: Machine, event: ControllerEvent) -> list[int]:
    """How many calls the machine makes from one effect to the next."""
    steps = machine.controller.handle(event)
    made: list[int] = []
    result: Any = None
    while True:
        found: list[ControllerEffect] = []

        def go_on(result: Any = result, found: list[ControllerEffect] = found) -> None:
            found += [effect for effect in [next_effect(steps, result)] if effect is not None]

        made.append(calls_of(go_on))
        if not found:
            return made
        result = machine._perform(found[0])


def next_effect(steps: Any, result: Any) -> ControllerEffect | None:
    try:
        return cast(ControllerEffect, steps.send(result))
    except StopIteration:
        return None


def test_a_topic_of_very_many_partitions_is_created_in_turns() -> None:
    machine = Machine(1, 2, 3)
    made = calls_between_effects(machine, CreateTopics(1, [TopicCreation("t", PARTITIONS, 3)]))
    assert len(machine.store.states) == PARTITIONS
    assert max(made) <= CALLS_MAX, made


def test_a_broker_that_leads_very_many_partitions_is_replaced_in_turns() -> None:
    machine = Machine(1, 2, 3)
    machine.handle(CreateTopics(1, [TopicCreation("t", PARTITIONS, 3)]))
    del machine.brokers[3]
    made = calls_between_effects(machine, BrokersChanged(dict(machine.brokers)))
    assert 3 not in {state.leader for state, _ in machine.store.states.values()}
    assert max(made) <= CALLS_MAX, made


@pytest.mark.parametrize(("module", "limit"), [(leaders, "PARTITIONS_AT_ONCE"), (requests, "ROWS_AT_ONCE")])
def test_all_in_one_turn_is_missed(module: Any, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, limit, _MANY)
    with pytest.raises(AssertionError):
        test_a_topic_of_very_many_partitions_is_created_in_turns()


def test_each_part_of_very_many_states_is_written_in_a_turn_of_its_own() -> None:
    clock, written = Clock(), list[int]()

    def multi(operations: Sequence[Any]) -> Deferred[list[Any]]:
        written.append(len(operations) - 1)
        return succeed([Stat(0, 0, 4, 0, 0)] * len(operations))

    term = SimpleNamespace(guard=lambda: None, session=SimpleNamespace(multi=multi))
    state = PartitionState(1, 7, (1,), 1)
    wanted = [StateWrite(TopicPartition("t", number), state, 3) for number in range(3 * BATCH_SIZE + 1)]
    done: list[Any] = []
    ensureDeferred(write_states(cast(Any, term), wanted, clock)).addCallback(done.extend)
    for turns in range(1, 5):
        assert written == [BATCH_SIZE, BATCH_SIZE, BATCH_SIZE, 1][:turns]
        for call in list(clock.calls):  # Not those that they ask for.
            clock.calls.remove(call)
            call.func(*call.args, **call.kw)
    assert len(done) == len(wanted) and all(each.done for each in done)


def test_states_that_are_written_at_once_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "pause", lambda clock: succeed(None))
    with pytest.raises(AssertionError):
        test_each_part_of_very_many_states_is_written_in_a_turn_of_its_own()


@pytest.mark.parametrize("unclean", [False, True])
def test_leaders_of_very_many_partitions_are_elected_in_turns(unclean: bool) -> None:
    machine = Machine(1, 2, 3)
    machine.handle(CreateTopics(1, [TopicCreation("t", PARTITIONS, 3)]))
    named = [TopicPartition("t", number) for number in range(ELECTIONS)]
    made = calls_between_effects(machine, ElectLeaders(2, named, unclean))
    assert max(made) <= ELECTION_CALLS_MAX, made


@pytest.mark.parametrize(("topics", "partitions"), [(1, PARTITIONS), (2_000, 1)])
def test_topics_of_very_many_partitions_are_deleted_in_turns(topics: int, partitions: int) -> None:
    machine = Machine(1, 2, 3)
    names = [f"t{number}" for number in range(topics)]
    machine.handle(CreateTopics(1, [TopicCreation(name, partitions, 3) for name in names]))
    made = calls_between_effects(machine, DeleteTopics(2, names))
    begun = machine.controller.state.deletions
    assert list(begun) == names and all(each.started for each in begun.values())
    assert max(made) <= CALLS_MAX, made


def test_deletions_in_one_turn_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "PARTITIONS_AT_ONCE", _MANY)
    with pytest.raises(AssertionError):
        test_topics_of_very_many_partitions_are_deleted_in_turns(1, PARTITIONS)


def test_the_states_of_a_deleted_topic_are_looked_for_by_few_requests_and_judged_in_turns() -> None:
    clock, asked = Clock(), list[int]()
    data = encode_partition_state(PartitionState(1, 7, (1,), 1))

    def get_all(paths: Sequence[str]) -> Deferred[Any]:
        asked.append(len(paths))
        return succeed([(data, Stat(0, 0, 4, 0, 0))] * len(paths))

    session: Any = SimpleNamespace(
        children=lambda path: succeed([str(number) for number in range(PARTITIONS)]), get_all=get_all
    )
    found: list[Any] = []
    ensureDeferred(writes._partition_znodes(session, "t")).addCallback(found.extend)
    assert len(found) == 2 * PARTITIONS
    assert sum(asked) == PARTITIONS and len(asked) <= 10
    ensureDeferred(writes._last_leader_epoch(session, "t", clock)).addCallback(found.append)
    turns = 0
    while clock.calls:
        turns += 1
        for call in list(clock.calls):
            clock.calls.remove(call)
            call.func(*call.args, **call.kw)
    assert turns == PARTITIONS // BATCH_SIZE
    assert found[-1] == 7


def test_elections_in_one_turn_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "PARTITIONS_AT_ONCE", _MANY)
    with pytest.raises(AssertionError):
        test_leaders_of_very_many_partitions_are_elected_in_turns(unclean=False)
