"""A known bug that is put back runs: no compiled call stands in for the function that it replaces."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import holdfast_log.broker
from holdfast_log.broker.log import log
from holdfast_log.broker.replication import session_fetch, several_fetch, usual_fetch
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.waiting import Waiting
from tests.sim.mutation import Mutation, mutated
from tests.sim.mutations import MUTATIONS, RARE, by_name
from tests.sim.stand_ins import STAND_INS, StandIn, switches_for, unknown_of

COMPILED = sorted(path.stem for path in Path(holdfast_log.broker.__file__).parent.rglob("_*.c"))


@pytest.mark.parametrize("mutation", [*MUTATIONS, *RARE], ids=lambda mutation: mutation.name)
def test_it_is_known_what_compiled_calls_do_about_each_mutated_function(mutation: Mutation) -> None:
    unknown = unknown_of(mutation.patches())
    assert not unknown, (
        f"{mutation.name} replaces functions beside which a compiled call does the same: {unknown}. Look "
        "whether the compiled code has its own form of them, or calls them or leaves to Python what they "
        "refuse; then name them in tests/sim/stand_ins.py, as replaced or as asked"
    )


def test_each_compiled_call_of_the_broker_has_an_entry() -> None:
    assert sorted(each.name for each in STAND_INS) == COMPILED


@pytest.mark.parametrize("stand_in", STAND_INS, ids=lambda each: each.name)
def test_all_names_are_those_of_functions_and_constants(stand_in: StandIn) -> None:
    others = [each for other in STAND_INS for each in other.modules]
    for name in stand_in.replaced:
        assert any(_has(module, name) for module in stand_in.modules), name
    for name in stand_in.asked:
        assert any(_has(module, name) for module in others), name
    for where, attribute, _ in stand_in.switches:
        assert hasattr(where, attribute)


def _has(module: ModuleType, name: str) -> bool:
    owner: object = module
    *outer, last = name.split(".")
    for each in outer:
        owner = getattr(owner, each, None)
    if not last.endswith("*"):
        return hasattr(owner, last) or last in getattr(owner, "__slots__", ())
    return any(each.startswith(last[:-1]) for each in dir(owner) if not each.startswith("__"))


def test_a_mutation_of_a_replaced_function_switches_the_compiled_call_off_while_it_runs() -> None:
    before = usual_fetch._compiled, log._compiled
    with mutated(by_name("uncommitted-shown")):
        assert usual_fetch._compiled is None
        assert log._compiled is before[1], "only what stands in for the function"
    assert (usual_fetch._compiled, log._compiled) == before


def test_other_mutations_leave_compiled_calls_on() -> None:
    assert not switches_for([(Partition, "check_leader_epoch", None), (Waiting, "wake", None)])
    both = [(usual_fetch, "_compiled", None), (several_fetch, "_compiled", None)]
    assert switches_for([(session_fetch, "read_all", None)]) == both


def test_a_mutation_of_a_function_that_nobody_has_looked_at_is_refused() -> None:
    assert unknown_of([(Waiting, "wake", None)]) == ["holdfast_log.broker.replication.waiting: Waiting.wake"]
    assert not unknown_of([(pkgutil, "iter_modules", None), (importlib, "reload", None)])
