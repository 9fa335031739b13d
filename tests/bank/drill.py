"""Runs a bank while its coordinator of transactions is killed again and again: python -m tests.bank.drill.

The exit status is 0 only if no auditor has ever seen another sum, and the judge finds nothing in the end.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bank.bank import Bank, open_bank
from tests.bank.books import BankPlan
from tests.bank.cluster import BROKERS, BankCluster, bank_cluster
from tests.bank.tills import BankError
from tests.checker.planting import Planting
from tests.sim.mutations import by_name

_SHOWN = 20
_ACCOUNTS_MIN = 4
"""What a teller needs for a transfer."""


def run(plan: BankPlan, directory: Path, seconds: float, every_s: float, bug: str = "") -> list[str]:
    """Run a bank for some seconds, with a kill every so often. Prints what happens; returns violations, of
    which one may be that the bank did not get to its end."""
    planting = Planting(directory / "planting", bug)
    arguments = planting.python_arguments if bug else ()
    with (
        bank_cluster(directory / "cluster", arguments) as cluster,
        open_bank(cluster.bootstrap, plan, replicas=BROKERS) as bank,
    ):
        killed: list[int] = []
        try:
            bank.wait_for_more(1)
            _kill_coordinators(cluster, bank, seconds, every_s, killed)
            bank.wait_for_more(1)
            violations = bank.settle()
        except BankError as error:
            violations = [*bank.violations(), str(error)]
        print(*violations[:_SHOWN], sep="\n", end="\n" if violations else "")
        print(
            f"{plan.accounts} accounts, {len(killed)} coordinators killed, {bank.account()}, "
            f"{len(violations)} violations"
        )
        return violations


def _kill_coordinators(
    cluster: BankCluster, bank: Bank, seconds: float, every_s: float, killed: list[int]
) -> None:
    """Kill coordinators, and note their ids."""
    began = time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        killed.append(cluster.kill_coordinator())
        cluster.wait_until_in_sync()
        print(
            f"{time.monotonic() - began:7.1f} s: killed the coordinator, broker {killed[-1]}; "
            f"{bank.account()}, {len(bank.violations())} violations",
            flush=True,
        )
        bank.check()
        time.sleep(max(0.0, now + every_s - time.monotonic()))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bank-drill.sh",
        description="Transfer money between accounts by transactions of librdkafka and of Holdfast's "
        "producer on three brokers, while the coordinator of transactions is killed again and again. "
        "Auditors of committed records check the sum after every transfer, and a judge compares in the end "
        "what every auditor has read with what every teller was answered. The last line counts. The exit "
        "status is 0 only if there is no violation.",
    )
    parser.add_argument("--seconds", type=float, default=300.0, metavar="N", help="length of the run [300]")
    parser.add_argument(
        "--every",
        type=float,
        default=10.0,
        metavar="N",
        help="seconds from one kill to the next; longer if replicas take longer to be in sync again [10]",
    )
    parser.add_argument("--accounts", type=int, default=1000, metavar="N", help="number of accounts [1000]")
    parser.add_argument("--tellers", type=int, default=10, metavar="N", help="number of tellers [10]")
    parser.add_argument("--auditors", type=int, default=2, metavar="N", help="number of auditors [2]")
    parser.add_argument(
        "--bug",
        default="",
        metavar="NAME",
        help="put a known bug of the simulation back in the brokers, such as aborted-not-told: the drill has "
        "to find it",
    )
    parsed = parser.parse_args(arguments)
    if parsed.tellers < 1 or parsed.auditors < 1 or parsed.accounts < _ACCOUNTS_MIN * parsed.tellers:
        parser.error(f"there must be an auditor, a teller, and {_ACCOUNTS_MIN} accounts for each teller")
    if parsed.bug:
        try:
            by_name(parsed.bug)
        except KeyError:
            parser.error(f"--bug: scripts/simulate.sh knows no {parsed.bug}")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parsed(arguments)
    logging.getLogger("holdfast").addHandler(logging.NullHandler())  # Clients warn at every kill.
    plan = BankPlan(parsed.accounts, parsed.tellers, parsed.auditors)
    directory = Path(tempfile.mkdtemp(prefix="holdfast-bank-"))
    print(f"{BROKERS} brokers, whose logs and data are in {directory} until the drill ends well.", flush=True)
    if run(plan, directory, parsed.seconds, parsed.every, parsed.bug):
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
