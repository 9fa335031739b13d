"""A bank on real brokers whose coordinator of transactions is killed: the sum never differs. With a bug in
the brokers it does.

`scripts/bank-drill.sh` does the same for minutes, with 1,000 accounts and ten tellers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bank.bank import LIBRARIES, open_bank
from tests.bank.books import BankPlan
from tests.bank.bugs import BUGS, found
from tests.bank.cluster import BROKERS, bank_cluster
from tests.bank.drill import main
from tests.bank.ledger import Ending
from tests.checker.planting import Planting
from tests.sim.mutations import by_name

PLAN = BankPlan(accounts=60, tellers=4, auditors=2, partitions=3, fenced_share=0.05)
BUSY = replace(PLAN, aborted_share=0.4, fenced_share=0.0)
"""What finds a bug soon."""
SOME_TRANSFERS = 3


@pytest.mark.timeout(1800)
def test_the_sum_never_differs_although_the_coordinator_is_killed_and_bugs_in_brokers_are_found(
    tmp_path: Path,
) -> None:
    planting = Planting(tmp_path / "planting")
    with bank_cluster(tmp_path / "cluster", planting.python_arguments) as cluster:
        with open_bank(cluster.bootstrap, PLAN, replicas=BROKERS) as bank:
            bank.wait_for_more(SOME_TRANSFERS)
            # On a busy machine a replica may have left the set: nobody could lead after the kill.
            cluster.wait_until_in_sync()
            cluster.kill_coordinator()
            bank.wait_for_more(SOME_TRANSFERS)
            while not bank.refused_because_fenced:
                bank.wait_for_more(1)
            assert bank.settle() == []
            endings = bank.endings
            print(bank.account())
        assert endings[Ending.COMMITTED] + endings[Ending.UNKNOWN] >= 2 * SOME_TRANSFERS * PLAN.tellers
        assert len(bank.auditors) == PLAN.auditors + len(LIBRARIES)
        assert len({auditor.taken for auditor in bank.auditors}) == 1

        cluster.wait_until_in_sync()
        missed = {bug: not found(cluster, planting, bug, replace(BUSY, topic=bug)) for bug in BUGS}
    assert missed == dict.fromkeys(BUGS, False)


def test_the_bugs_are_known_ones() -> None:
    assert [by_name(bug).name for bug in BUGS] == list(BUGS)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tellers", "0"], "there must be an auditor, a teller, and 4 accounts for each teller"),
        (["--accounts", "39"], "there must be an auditor, a teller, and 4 accounts for each teller"),
        (["--bug", "gossip"], "scripts/simulate.sh knows no gossip"),
    ],
)
def test_the_drill_refuses_what_it_cannot_do(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert complaint in capsys.readouterr().err
