"""The whole checker: a cluster of its own with kills, a cluster that runs already, a history in a file."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_log import Admin
from holdfast_log.checker.calls import (
    Action,
    CallHistory,
    FaultSpan,
    Outcome,
    OwnershipCall,
    from_lines,
    to_line,
)
from holdfast_log.checker.check_history import check_other_cluster, main
from holdfast_log.checker.clients.crew import CheckSettings
from holdfast_log.checker.cluster import checked_cluster
from holdfast_log.checker.faults import BrokerFault, FaultPlayer, fault_order, parse_faults
from holdfast_log.checker.load import CheckLoad
from holdfast_log.checker.recorder import Recorder
from holdfast_log.checker.verdict import judge
from tests.cluster import Cluster

TIMEOUT_S = 180.0
ENOUGH = 30


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)


def progress(history: CallHistory) -> int:
    """The number of calls of the kind that has had the fewest successes so far."""
    return min(
        sum(call.is_confirmation for call in history.ownership),
        sum(call.outcome is Outcome.DONE for call in history.appends),
        sum(call.outcome is Outcome.DONE for call in history.keys),
        len(history.reads),
        sum(call.outcome is Outcome.DONE and bool(call.appends) for call in history.transactions),
    )


@pytest.mark.timeout(900)
def test_a_cluster_whose_brokers_are_killed_keeps_to_the_rules(tmp_path: Path) -> None:
    recorder = Recorder()
    with checked_cluster(tmp_path) as cluster:
        load = CheckLoad(CheckSettings(cluster.bootstrap, recorder, "check"))
        load.create_topics()
        cluster.wait_until_whole(load.places)
        load.start()
        wait_for(lambda: progress(recorder.history) > ENOUGH and not load.silent_clients())
        player = FaultPlayer(cluster, recorder, random.Random(1), print)
        player.play([BrokerFault.KILL], load.places, recorder.now_s() + 1.0)
        before = progress(recorder.history)
        wait_for(lambda: progress(recorder.history) > before + ENOUGH)
        load.end()
        cluster.wait_until_whole(load.places)
        load.read_stored()
    verdict = judge(recorder.history)

    print(verdict, *load.crew.errors.items(), sep="\n")
    assert verdict.holds, (verdict.violations[:5], verdict.missing)
    assert not load.crew.troubles
    assert verdict.faults == 1


def test_a_cluster_that_runs_already_is_driven_without_faults_and_has_its_topics_deleted(
    cluster: Cluster,
) -> None:
    cluster.start()
    recorder = Recorder()
    troubles = check_other_cluster(cluster.bootstrap, recorder, seconds=1.0)

    assert not troubles
    assert not judge(recorder.history).violations
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        # Brokers learn of it later than the controller answers.
        wait_for(lambda: not any(topic.startswith("check-") for topic in admin.list_topics()))


def confirmed(client: str, action: Action, at_s: float, grant: int) -> OwnershipCall:
    return OwnershipCall(client, "group/leader", action, at_s, at_s + 0.5, Outcome.DONE, grant)


TWO_HOLDERS = (
    confirmed("anna", Action.CLAIM, 0.0, 1),
    confirmed("ben", Action.CLAIM, 1.0, 2),
    confirmed("anna", Action.RENEW, 2.0, 1),
)


def test_a_wrong_history_in_a_file_is_reported_with_its_counts_and_exit_status_1(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    fault = FaultSpan("kill", 1, 0.5, 0.7)
    path.write_text("".join(to_line(call) + "\n" for call in (*TWO_HOLDERS, fault)))

    answer = CliRunner().invoke(main, ["--check", str(path)])

    assert answer.exit_code == 1
    lines = answer.output.splitlines()
    assert lines[0].startswith("VIOLATION: two holders: renew of group/leader by anna, grant 1")
    assert lines[-1] == (
        "operations 3, confirmations 3, take-overs 1, acknowledged appends 0, "
        "committed transactions 0, faults 1, violations 1"
    )


def test_a_history_without_any_read_proves_nothing_about_reads() -> None:
    verdict = judge(CallHistory(ownership=[confirmed("anna", Action.CLAIM, 0.0, 1)]))

    assert not verdict.violations and not verdict.holds
    assert "a read" in verdict.missing and "a confirmation of an owner" not in verdict.missing


def test_a_line_that_is_no_call_is_named_by_its_number() -> None:
    with pytest.raises(ValueError, match="line 2"):
        from_lines([to_line(TWO_HOLDERS[0]), '{"kind": "gossip"}'])


def test_faults_are_all_none_or_a_list() -> None:
    assert parse_faults("all") == tuple(BrokerFault)
    assert parse_faults("none") == ()
    assert parse_faults("kill,cut-zookeeper") == (BrokerFault.KILL, BrokerFault.CUT_ZOOKEEPER)
    with pytest.raises(ValueError, match="flood"):
        parse_faults("kill,flood")


def test_a_cut_from_zookeeper_comes_first_and_each_fault_once_before_any_comes_again() -> None:
    kinds = len(BrokerFault)
    order = fault_order(tuple(BrokerFault), random.Random(1))
    first, second = list(islice(order, kinds)), list(islice(order, kinds))
    assert first[0] is BrokerFault.CUT_ZOOKEEPER
    assert set(first) == set(second) == set(BrokerFault)


def test_other_faults_come_without_a_cut_and_none_where_there_are_none() -> None:
    two = (BrokerFault.KILL, BrokerFault.MOVE)
    assert set(islice(fault_order(two, random.Random(1)), 2)) == set(two)
    assert list(fault_order((), random.Random(1))) == []
