"""Runs a bank while its coordinator of transactions is killed again and again: python -m tests.bank.drill.

The exit status is 0 only if no auditor has ever seen another sum, and the judge finds nothing in the end.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast_log.broker.tools.broker_process import BrokerProcessError
from tests.bank.bank import Bank, open_bank
from tests.bank.books import BankPlan
from tests.bank.cluster import IN_SYNC_MIN, BankCluster, bank_cluster
from tests.bank.kills import KillPlan
from tests.bank.tills import BankError
from tests.checker.planting import Planting
from tests.sim.mutations import by_name

DRILL_BROKERS = 5
"""So many that one can be killed while those killed before it are not in sync again yet."""
_SHOWN = 20
_LOOK_S = 0.1
_ACCOUNTS_MIN = 4
"""What a teller needs for a transfer."""


def run(plan: BankPlan, directory: Path, seconds: float, every_s: float, bug: str = "") -> list[str]:
    """Run a bank for some seconds, with a kill every so often. Prints what happens; returns violations, of
    which one may be that the bank did not get to its end."""
    planting = Planting(directory / "planting", bug)
    arguments = planting.python_arguments if bug else ()
    with (
        bank_cluster(
            directory / "cluster", arguments, brokers=DRILL_BROKERS, state_partitions=DRILL_BROKERS
        ) as cluster,
        open_bank(cluster.bootstrap, plan, replicas=DRILL_BROKERS) as bank,
    ):
        ids = [plan.transactional_id(teller) for teller in range(plan.tellers)]
        kills = KillPlan(every_s, ids, IN_SYNC_MIN, next_s=0.0)
        try:
            bank.wait_for_more(1)
            _kill_coordinators(cluster, bank, plan, kills, seconds)
            bank.wait_for_more(1)
            violations = bank.settle()
        except (BankError, BrokerProcessError, TimeoutError) as error:
            violations = [*bank.violations(), str(error)]
        print(*violations[:_SHOWN], sep="\n", end="\n" if violations else "")
        print(
            f"{plan.accounts} accounts, {kills.account()}, {bank.account()}, {len(violations)} violations",
            flush=True,
        )
        return violations


def _kill_coordinators(
    cluster: BankCluster, bank: Bank, plan: BankPlan, kills: KillPlan, seconds: float
) -> None:
    began = time.monotonic()
    while (now := time.monotonic() - began) < seconds:
        sight = cluster.sight(plan.topic, plan.partitions)
        broker = kills.look(now, sight)
        if broker is not None:
            coordinated = kills.coordinated(sight)[broker]
            cluster.restart_killed(broker)
            kills.note_kill(now, broker, sight)
            print(
                f"{now:7.1f} s: killed broker {broker}, the coordinator of {coordinated} of {plan.tellers} "
                f"tellers; {bank.account()}, {len(bank.violations())} violations",
                flush=True,
            )
            bank.check()
        time.sleep(_LOOK_S)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bank-drill.sh",
        description="Transfer money between accounts by transactions of librdkafka and of Holdfast's "
        "producer on five brokers, while a coordinator of transactions is killed (kill -9) again and again, "
        "and started at once. Auditors of committed records check the sum after every transfer, and a judge "
        "compares in the end what every auditor has read with what every teller was answered. The last line "
        "counts. The exit status is 0 only if there is no violation.",
    )
    parser.add_argument("--seconds", type=float, default=300.0, metavar="N", help="length of the run [300]")
    parser.add_argument(
        "--every",
        type=float,
        default=10.0,
        metavar="N",
        help="seconds from one kill to the next, by the clock; a kill waits only while no coordinator can be "
        "spared because its partitions would not keep two replicas in sync [10]",
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
    # Brokers start from Python's bytecode, as installed ones do, also where Python is told to write none.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")
    print(
        f"{DRILL_BROKERS} brokers, whose logs and data are in {directory} until the drill ends well.",
        flush=True,
    )
    if run(plan, directory, parsed.seconds, parsed.every, parsed.bug):
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
