"""Runs one cell in its own process: python -m tests.faults.run_cell NAME --directory D [options].

The last line printed is a `Verdict` as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast_log.broker.tools.machine import HookedMachine, Machine
from holdfast_log.broker.tools.relays import Relays
from tests.bank.bank import open_bank
from tests.bank.books import BankPlan
from tests.faults.account import Findings, compare
from tests.faults.cells import Cell, Fault, Role, named
from tests.faults.machines import Ext4Machine
from tests.faults.namespaces import Namespaces
from tests.faults.networks import Loopback, Network
from tests.faults.reader import diverged
from tests.faults.scene import BROKERS, PARTITIONS, Scene, set_scene
from tests.faults.strokes import strike

LOOPBACK, NAMESPACES, RELAYS = "loopback", "namespaces", "relays"
PLAIN, HOOKS, EXT4 = "plain", "hooks", "ext4"
"""Machines: a direct start of the brokers, `HookedMachine`, and `Ext4Machine`."""
SESSION_TIMEOUT_MS = 6000
_FAILURES_SHOWN = 5
_BANK = BankPlan(pace_s=0.1)
_SOME_TRANSFERS = 10
"""What every teller of a bank commits before the fault, and again after it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a cell ended. `error` is empty if the cell ran to its end. `longest_pause_s` is the longest time in
    which any partition acknowledged nothing to its client. `network` and `machine` name the means by which
    the fault was made. `failed` counts the records that a client gave up; `failures` has some of the errors.
    """

    name: str
    network: str
    findings: Findings
    failed: int = 0
    failures: tuple[str, ...] = ()
    diverged: tuple[str, ...] = ()
    longest_pause_s: float = 0.0
    seconds: float = 0.0
    error: str = ""
    machine: str = PLAIN
    bank: str = ""
    """How the transfers of a bank ended, if there was one."""
    wrong_sums: tuple[str, ...] = ()
    """What its auditors found."""

    @property
    def holds(self) -> bool:
        return not (self.error or self.failed or self.diverged or self.wrong_sums or self.findings.faults)

    @property
    def troubles(self) -> str:
        """Everything that is wrong, as text; empty if the cell holds."""
        found = [f"{count} {name}" for name, count in self.findings.faults.items()]
        found += [f"{self.failed} failed: {'; '.join(self.failures)}"] if self.failed else []
        found += [f"replicas of {name} differ" for name in self.diverged]
        found += self.wrong_sums[:3]
        return ", ".join([*found, *([self.error] if self.error else [])])

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Verdict:
        values = json.loads(line)
        findings, apart = Findings(**values["findings"]), tuple(values["diverged"])
        failures, sums = tuple(values["failures"]), tuple(values["wrong_sums"])
        known = {"findings": findings, "failures": failures, "diverged": apart, "wrong_sums": sums}
        return cls(**{**values, **known})


def _drive(scene: Scene, cell: Cell, fault_s: float, *, has_bank: bool) -> tuple[str, Sequence[str]]:
    """Make the fault while clients write. With a bank, returns its account and what its auditors found."""
    if not has_bank:
        _suffer(scene, cell, fault_s)
        return "", ()
    with open_bank(scene.bootstrap, _BANK, replicas=BROKERS) as bank:
        bank.wait_for_more(_SOME_TRANSFERS)
        _suffer(scene, cell, fault_s)
        bank.wait_for_more(_SOME_TRANSFERS)
        wrong = bank.settle()
        return bank.account(), wrong


def _suffer(scene: Scene, cell: Cell, fault_s: float) -> None:
    strike(scene, cell, fault_s)
    scene.wait_until_whole()
    scene.write_more()


def _properties(cell: Cell) -> Mapping[str, str]:
    """Settings of the brokers of a cell."""
    own = {"transaction.state.log.num.partitions": str(BROKERS)}
    return own | ({"flush.before.ack": "true"} if cell.fault is Fault.POWER_LOSS_FLUSHED else {})


def run(
    cell: Cell,
    directory: Path,
    network: str,
    machine: str,
    fault_s: float,
    session_timeout_ms: int,
    *,
    has_bank: bool = False,
) -> Verdict:
    """Run a cell and return its verdict. With a bank, transactions are made beside the loads."""
    began = time.monotonic()
    place = _open(network)
    try:
        in_scene = set_scene(
            directory,
            place,
            is_compressed=cell.is_compressed,
            session_timeout_ms=session_timeout_ms,
            zookeepers=3 if cell.fault is Fault.LEADER_CHANGE else 1,
            new_machine=_NEW_MACHINES[machine],
            properties=_properties(cell),
        )
        with in_scene as scene:
            told, wrong_sums = _drive(scene, cell, fault_s, has_bank=has_bank)
            scene.stop_loads()
            stored = scene.read_all()
            findings = Findings()
            for load in scene.loads:
                for partition, account in enumerate(load.partitions):
                    findings += compare(account, stored[load.topic, partition])
            # A replica that lags on a busy machine has all that is acknowledged once it is in sync again.
            scene.wait_until_whole()
            failures = [f"{load.client}: {failure}" for load in scene.loads for failure in load.failures]
            scene.close_brokers()
            apart = [
                name
                for load in scene.loads
                for name in diverged(
                    [directory for broker in scene.brokers for directory in broker.log_dirs],
                    load.topic,
                    PARTITIONS,
                )
            ]
            return Verdict(
                cell.name,
                network,
                findings,
                failed=len(failures),
                failures=tuple(sorted(set(failures))[:_FAILURES_SHOWN]),
                diverged=tuple(apart),
                longest_pause_s=max(
                    account.longest_pause_s() for load in scene.loads for account in load.partitions
                ),
                seconds=time.monotonic() - began,
                machine=machine,
                bank=told,
                wrong_sums=tuple(wrong_sums),
            )
    except Exception as error:
        traceback.print_exc()
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        seconds = time.monotonic() - began
        return Verdict(cell.name, network, Findings(), seconds=seconds, error=said, machine=machine)
    finally:
        place.close()


_NEW_MACHINES: Mapping[str, Callable[[Path], Machine] | None] = {
    PLAIN: None,
    HOOKS: HookedMachine,
    EXT4: Ext4Machine,
}


def _open(network: str) -> Network:
    if network == NAMESPACES:
        return Namespaces(BROKERS)
    return Relays() if network == RELAYS else Loopback()


def needs_cut(cell: Cell) -> bool:
    """Whether the cell cuts off a broker, which is not possible on loopback."""
    return cell.fault is Fault.CUT and cell.role is not Role.ZOOKEEPER


def needs_relays(cell: Cell) -> bool:
    """Whether the cell cuts some of a broker's connections, which only relays can do."""
    return cell.fault in (Fault.ZOOKEEPER_CUT, Fault.CLOCK_STEP)


def needs_hooks(cell: Cell) -> bool:
    """Whether the cell sets a broker's clock, or removes its files."""
    return cell.fault in (Fault.CLOCK_STEP, Fault.EMPTY_DISK)


def needs_disk(cell: Cell) -> bool:
    """Whether the cell needs a disk that can be filled and can lose unsynced writes."""
    return cell.fault in (Fault.DISK_FULL, Fault.POWER_LOSS, Fault.POWER_LOSS_FLUSHED)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.run_cell", description="Run one cell of the fault matrix."
    )
    parser.add_argument("name", help="cell to run, such as leader/kill/plain")
    parser.add_argument("--directory", type=Path, required=True, help="directory for logs and data")
    parser.add_argument(
        "--network",
        choices=(LOOPBACK, NAMESPACES, RELAYS),
        default=LOOPBACK,
        help=f"network of the brokers [{LOOPBACK}]",
    )
    parser.add_argument(
        "--machine",
        choices=(PLAIN, HOOKS, EXT4),
        default=PLAIN,
        help=f"machines of the brokers [{PLAIN}]",
    )
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="length of a pause, cut or outage, in seconds [30]"
    )
    parser.add_argument(
        "--session-timeout-ms",
        type=int,
        default=SESSION_TIMEOUT_MS,
        help=f"ZooKeeper session timeout of the brokers [{SESSION_TIMEOUT_MS}]",
    )
    parser.add_argument("--bank", action="store_true", help="make transactions beside the loads")
    arguments = parser.parse_args()
    verdict = run(
        named(arguments.name),
        arguments.directory,
        arguments.network,
        arguments.machine,
        arguments.seconds,
        arguments.session_timeout_ms,
        has_bank=arguments.bank,
    )
    print(verdict.to_json(), flush=True)


if __name__ == "__main__":
    main()
