"""Every block of commands in the README and docs is executed by a named test, or says why it is not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.documented import CommandBlock, blocks, commands, hidden_commands
from tests.faults.cells import ALL_CELLS

HOME = Path(__file__).parents[1]
HERE = "tests/integration/test_documented_commands.py"
CONFIGS = "scripts/configs.sh --bootstrap-server localhost:9092"
BENCHMARKS = f"{HERE}::test_a_benchmark_knows_its_options"
PROCEDURES = "tests/integration/test_procedures.py::test_the_procedures_of_the_page_do_what_they_say"
DIRECTORIES = (
    "tests/integration/test_directory_procedures.py::test_the_procedures_of_the_page_do_what_they_say"
)

EXECUTED = {
    ("README.md", "scripts/local-cluster.sh"): f"{HERE}::test_a_cluster_to_play_with",
    ("README.md", "scripts/topics.sh"):
        "tests/integration/test_readme.py::test_the_command_line_example_writes_and_reads",
    ("README.md", "scripts/zookeeper-server-start.sh"): f"{HERE}::test_servers_from_their_properties_files",
    ("docs/console.md", "scripts/console.sh"): f"{HERE}::test_the_console_starts",
    ("docs/consumer-groups.md", "scripts/consumer-groups.sh"): f"{HERE}::test_groups",
    ("docs/installation.md", "holdfast quickstart"):
        "tests/integration/test_command.py::test_the_quickstart_counts_what_it_moves",
    ("docs/log-directories.md", "BROKER="): DIRECTORIES,
    ("docs/log-directories.md", "in_sync"): DIRECTORIES,
    ("docs/log-directories.md", "placement orders"): DIRECTORIES,
    ("docs/log-directories.md", "scripts/configs.sh"): DIRECTORIES,
    ("docs/log-directories.md", "placement $("): DIRECTORIES,
    ("docs/log-directories.md", "scripts/server-start.sh"): DIRECTORIES,
    ("docs/operating.md", "BROKERS="): PROCEDURES,
    ("docs/operating.md", "for id in 1 2 3; do"): PROCEDURES,
    ("docs/operating.md", "scripts/broker-api-versions.sh"): PROCEDURES,
    ("docs/operating.md", "scripts/server-start.sh -daemon config/server-4"): PROCEDURES,
    ("docs/operating.md", "scripts/server-start.sh -daemon config/server-3"): PROCEDURES,
    ("docs/operating.md", "scripts/topics.sh"): PROCEDURES,
    ("docs/operating.md", "scripts/log-dirs.sh"): PROCEDURES,
    ("docs/operating.md", "scripts/zookeeper-server-start.sh"): PROCEDURES,
    ("docs/operating.md", "in_sync"): PROCEDURES,
    ("docs/operating.md", "mv data"): PROCEDURES,
    ("docs/operating.md", f"{CONFIGS} --entity-type broker-loggers"):
        f"{HERE}::test_levels_of_loggers",
    ("docs/zookeeper.md", "(umask 077; echo \"holdfast"): f"{HERE}::test_a_digest_that_nobody_else_reads",
    ("docs/quotas.md", f"{CONFIGS} --client"):
        f"{HERE}::test_quotas",
    ("docs/security.md", "scripts/configs.sh"): f"{HERE}::test_users_of_scram",
    ("docs/security.md", "scripts/acls.sh"): f"{HERE}::test_access_control_lists",
    ("docs/simulation.md", "scripts/simulate.sh --replay 1 "): f"{HERE}::test_a_known_bug_is_replayed",
    ("docs/spark-sink.md", "python -m"): f"{HERE}::test_the_record_of_a_query",
}  # fmt: skip
"""By page and the beginning of the first command: the test that executes the block as it is written, but for
addresses and directories."""

SMALLER = {
    ("README.md", ".venv/bin/python -m benchmarks.broker"): BENCHMARKS,
    ("docs/benchmarks.md", "python -m benchmarks.peers"): BENCHMARKS,
    ("docs/reliability.md", "python -m benchmarks.availability"): BENCHMARKS,
    ("docs/histories.md", "scripts/check-history.sh"):
        "tests/checker/test_check_history.py::test_a_cluster_whose_brokers_are_killed_keeps_to_the_rules",
    ("docs/reliability.md", "scripts/bank-drill.sh"):
        "tests/bank/test_bank.py::"
        "test_the_sum_never_differs_although_the_coordinator_is_killed_and_bugs_in_brokers_are_found",
    ("docs/reliability.md", "scripts/fault-matrix.sh"): f"{HERE}::test_the_fault_matrix_lists_its_cells",
    ("docs/hostile-clients.md", "scripts/damaged-frames.sh"):
        "tests/integration/test_damaged_frames.py::test_damaged_requests_harm_nobody",
    ("docs/hostile-clients.md", "scripts/cluster-start.sh -n 1"):
        "tests/hostile/test_walk.py::test_no_attack_of_a_client_without_a_right_does_harm",
    ("docs/hostile-clients.md", "scripts/hostile-broker-walk.sh"):
        "tests/hostile/test_client_walk.py::test_a_client_that_is_lied_to_ends_its_calls_and_does_not_grow",
    ("docs/reliability.md", "scripts/takeover-drill.sh"):
        "tests/takeovers/test_drill.py::test_owners_resumed_after_a_takeover_append_nothing",
    ("docs/costliest-requests.md", "scripts/hostile-requests.sh"):
        "tests/hostile/test_worst_requests.py::test_no_request_takes_a_long_turn_or_much_memory",
    ("docs/reliability.md", "scripts/soak.sh"):
        "tests/soak/test_soak.py::test_a_short_soak_loses_nothing_and_sees_every_life",
    ("docs/simulation.md", "scripts/simulate.sh --seeds"): f"{HERE}::test_seeds_are_simulated",
    ("docs/spark-jobs.md", "scripts/pipeline.sh load"):
        "tests/pipeline/jobs/test_jobs.py::test_each_run_of_a_load_adds_what_is_new_as_typed_and_partitioned_rows",
    ("docs/spark-deployment.md", "pip wheel"):
        "tests/pipeline/test_deployment.py::test_spark_submit_carries_the_data_source_to_executors_in_other_processes",
    ("docs/spec/README.md", "scripts/model-check.sh"):
        "tests/spec/test_spec.py::test_the_log_holds_and_a_wrong_step_in_it_is_found",
    ("docs/installation.md", "pip install"):
        "tests/packaging/test_wheel.py::test_the_command_works_and_says_what_servers_need",
    ("README.md", "pip install"):
        "tests/packaging/test_wheel.py::test_a_bare_installation_brings_no_package_of_the_server",
    ("docs/installation.md", "scripts/build-wheels.sh"):
        "tests/packaging/test_building.py::test_a_wheel_is_for_the_cpython_that_builds_it",
}  # fmt: skip
"""The same for programs that run for minutes or install packages: the test runs the same program for less
time or with less data."""

NOT_RUN = {
    ("README.md", "scripts/quickstart.sh"): "installs packages; scripts/test.sh is what runs these tests",
    ("docs/console.md", "ssh -L"): "needs another machine",
    ("docs/installation.md", "python3 -m venv /opt/holdfast"):
        "adds a user and a service to the machine; tests/packaging/test_services.py checks the unit",
    ("docs/installation.md", "docker build"):
        "needs a container engine; tests/packaging/test_services.py checks image and compose file",
    ("docs/spark-deployment.md", "python3 -m venv"):
        "installs 450 MB of packages and needs a cluster of Spark",
}  # fmt: skip
"""Blocks that no test executes, and why."""


def keys_of(each: CommandBlock) -> list[tuple[str, str]]:
    return [
        key
        for table in (EXECUTED, SMALLER, NOT_RUN)
        for key in table
        if each.page == key[0] and each.first.startswith(key[1])
    ]


def test_every_block_of_commands_is_executed_or_says_why_not() -> None:
    found = {f"{each.page}: {each.first}": keys_of(each) for each in blocks()}

    assert len(found) > 30
    assert [name for name, keys in found.items() if not keys] == [], "name the test that executes it"
    assert [name for name, keys in found.items() if len(keys) > 1] == []


def test_no_entry_outlives_its_block() -> None:
    written = [key for each in blocks() for key in keys_of(each)]

    assert [key for table in (EXECUTED, SMALLER, NOT_RUN) for key in table if key not in written] == []


@pytest.mark.parametrize("test", sorted({*EXECUTED.values(), *SMALLER.values()}))
def test_every_named_test_exists(test: str) -> None:
    path, _, name = test.partition("::")
    functions = [
        node.name for node in ast.parse((HOME / path).read_text()).body if isinstance(node, ast.FunctionDef)
    ]

    assert name in functions


def test_every_failure_drill_of_the_operating_guide_names_what_runs_it() -> None:
    drills = (
        (HOME / "docs" / "operating.md").read_text().partition("## Failure drills\n")[2].partition("\n## ")[0]
    )
    table = drills[drills.index("\n| ") + 1 :].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    cells = {each.name for each in ALL_CELLS}

    assert len(rows) > 10
    for row in rows:
        runners = re.findall(r"`([\w./:-]+)`", row.split(" | ")[-1])
        assert runners, row
        for runner in runners:
            if "::" in runner:
                test_every_named_test_exists(runner)
            else:
                assert runner in cells


@pytest.mark.parametrize(("key", "test"), [(k, v) for k, v in EXECUTED.items() if v.startswith(HERE)])
def test_what_is_executed_is_read_from_the_page(key: tuple[str, str], test: str) -> None:
    path, _, name = test.partition("::")
    (function,) = [
        node
        for node in ast.parse((HOME / path).read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]

    assert f"'{key[0]}'" in ast.unparse(function), "it names the page of which it executes the block"


def test_commands_are_not_hidden_in_blocks_of_another_kind() -> None:
    assert list(hidden_commands()) == []


def test_commands_are_taken_apart() -> None:
    text = "# first\na --b \\\n    c   # why\n\nd 'e # f'\n"

    assert commands(text) == ["a --b c", "d 'e"], (
        "a hash after a space is a comment: pages must not quote one"
    )
