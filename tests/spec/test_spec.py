"""The specification in `docs/spec` agrees with its checker, and its small models hold."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.sim.mutants import access, fences, names, ownership
from tests.spec.check import FENCES, LEASES, MODELS, SMALL_LOG, WRONG_STEPS, described_step
from tests.spec.tlc import SPEC, SpecModel, SpecVerdict, find_jar, parsed, run

_VIOLATION = """Error: Invariant NoStaleAppend is violated.
Error: The behavior up to this point is:
State 1: <Initial predicate>
1,234 states generated, 567 distinct states found, 89 states left on queue.
The depth of the complete state graph search is 12.
"""


def _module(model: SpecModel) -> str:
    return (SPEC / f"{model.module}.tla").read_text()


def test_each_wrong_step_of_a_module_is_listed_and_each_listed_one_exists() -> None:
    found = {
        (module, bug)
        for module in ("Ownership", "Log", "Transactions")
        for bug in re.findall(r'Bug [=#] "([a-z-]+)"', (SPEC / f"{module}.tla").read_text())
    }
    assert found == {(wrong.model.module, wrong.bug) for wrong in WRONG_STEPS}


def test_each_wrong_step_violates_a_property_that_its_model_checks() -> None:
    for wrong in WRONG_STEPS:
        assert wrong.violates in wrong.model.properties


@pytest.mark.parametrize("model", [model for models in MODELS.values() for model in models])
def test_each_property_of_a_configuration_is_defined_in_its_module(model: SpecModel) -> None:
    assert model.properties
    for name in model.properties:
        assert re.search(rf"^{name} ==", _module(model), re.M), name


def test_the_table_names_each_mutation_of_ownership_in_the_simulation() -> None:
    table = (SPEC / "README.md").read_text()
    known = (
        *ownership.MUTATIONS,
        *names.MUTATIONS,
        *access.MUTATIONS,
        *fences.MUTATIONS,
        *fences.RARE,
    )
    for mutation in known:
        assert f"| `{mutation.name}` |" in table, mutation.name


def test_a_violation_is_read_from_the_output() -> None:
    verdict = parsed(FENCES, _VIOLATION, is_timed_out=False)
    assert (verdict.violated, verdict.is_complete, verdict.holds) == ("NoStaleAppend", True, False)
    assert (verdict.states, verdict.distinct, verdict.depth) == (1234, 567, 12)


def test_a_violated_action_property_is_named_by_its_definition() -> None:
    line = _module(LEASES)[: _module(LEASES).index("IncarnationsRise ==")].count("\n") + 2
    text = (
        f"Error: Action property line {line}, col 5 to line {line}, col 9 of module Ownership is violated.\n"
    )
    assert parsed(LEASES, text, is_timed_out=False).violated == "IncarnationsRise"


@pytest.mark.parametrize("is_timed_out", [False, True])
def test_a_run_that_did_not_finish_does_not_hold(is_timed_out: bool) -> None:
    text = "Error: TLC threw an unexpected exception.\n"
    if is_timed_out:
        text = "Progress(9): 5 states generated, 5 distinct states found, 5 states left on queue.\n"
    assert not parsed(LEASES, text, is_timed_out=is_timed_out).holds


def test_a_wrong_step_that_is_not_found_is_reported() -> None:
    held = SpecVerdict(None, True, 10, 5, 2, "")
    assert "NOT FOUND" in described_step(WRONG_STEPS[0], held)


def test_the_log_holds_and_a_wrong_step_in_it_is_found() -> None:
    jar = find_jar()
    if shutil.which("java") is None or jar is None:
        pytest.skip("TLC is not on this machine: scripts/model-check.sh fetches it (needs Java)")
    verdict = run(jar, SMALL_LOG)
    assert verdict.holds, verdict.output
    assert verdict.distinct > 10_000
    wrong = next(each for each in WRONG_STEPS if each.bug == "condition-not-checked")
    assert run(jar, wrong.model, bug=wrong.bug).violated == wrong.violates
