"""Known bugs, put back in the real brokers of a bank: an auditor that misses a known bug would miss a new one
too."""

from __future__ import annotations

import time

from tests.bank.bank import open_bank
from tests.bank.books import BankPlan
from tests.bank.cluster import BROKERS, BankCluster
from tests.bank.tills import WAIT_S
from tests.checker.planting import Planting

BUGS = ("aborted-not-told", "high-watermark-for-stable", "abort-markers-dropped")
"""Those that a bank without faults finds within seconds, of `tests.sim.mutants`."""
_LOOK_S = 0.1


def found(cluster: BankCluster, planting: Planting, bug: str, plan: BankPlan) -> list[str]:
    """What is found until the first violation while a bug is in force; nothing after `WAIT_S`."""
    until_s = time.monotonic() + WAIT_S
    with (
        planting.planted(bug, cluster.brokers),
        open_bank(cluster.bootstrap, plan, replicas=BROKERS) as bank,
    ):
        while not (violations := bank.violations()) and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
        return violations
