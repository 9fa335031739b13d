"""Runs the fault matrix, two cells at a time by default. Started by `scripts/fault-matrix.sh`.

The exit status is 0 only if every cell held: no acknowledged record was lost or duplicated, and nothing else
was wrong. If a cell failed, the directory with its brokers' logs and data is kept and printed.
"""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from holdfast_log.coordinator.parent_process import die_with_parent
from tests.bank.tills import WAIT_S
from tests.faults import machines, namespaces
from tests.faults.account import Findings
from tests.faults.cells import ALL_CELLS, Cell
from tests.faults.run_cell import (
    EXT4,
    HOOKS,
    LOOPBACK,
    NAMESPACES,
    PLAIN,
    RELAYS,
    SESSION_TIMEOUT_MS,
    Verdict,
    needs_cut,
    needs_disk,
    needs_hooks,
    needs_relays,
)

TOGETHER = 2
_CELL_TIMEOUT_S = 600.0
_BANK_TIMEOUT_S = 4 * WAIT_S
"""How long a bank has beyond that: its staff may wait before the fault, after it, and in the end."""
_COLUMNS = "{:38} {:>10} {:>13} {:>9} {:>5} {:>10} {:>8}"
_HEADINGS = ("cell", "by", "acknowledged", "consumed", "lost", "duplicated", "pause s")


def run_cells(
    cells: Sequence[Cell],
    directory: Path,
    *,
    fault_s: float,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    network: str | None = None,
    machine: str | None = None,
    together: int = TOGETHER,
    has_bank: bool = False,
) -> Iterator[Verdict]:
    """Yield verdicts as cells end. `network` is used for cuts; None: namespaces if possible, else relays.
    `machine` is used for full disks and power losses; None: ext4 if possible, else hooks."""
    if network is None and any(map(needs_cut, cells)):
        network = NAMESPACES if namespaces.are_possible() else RELAYS
    if machine is None and any(map(needs_disk, cells)):
        machine = EXT4 if machines.can_mount() else HOOKS
    run = partial(
        _run,
        directory=directory,
        fault_s=fault_s,
        session_timeout_ms=session_timeout_ms,
        has_bank=has_bank,
    )
    with ThreadPoolExecutor(together) as pool:
        under_way = [
            pool.submit(run, cell, network=_network(cell, network), machine=_machine(cell, machine))
            for cell in cells
        ]
        for done in as_completed(under_way):
            yield done.result()


def _network(cell: Cell, for_cuts: str | None) -> str:
    if needs_relays(cell):
        return RELAYS
    return for_cuts if needs_cut(cell) and for_cuts is not None else LOOPBACK


def _machine(cell: Cell, for_disks: str | None) -> str:
    if needs_hooks(cell):
        return HOOKS
    return for_disks if needs_disk(cell) and for_disks is not None else PLAIN


def _run(
    cell: Cell,
    directory: Path,
    fault_s: float,
    session_timeout_ms: int,
    network: str,
    machine: str,
    *,
    has_bank: bool,
) -> Verdict:
    own = directory / cell.name.replace("/", "-")
    own.mkdir(parents=True, exist_ok=True)
    command = [*(namespaces.prefix() if network == NAMESPACES else [])]
    command += [*(machines.prefix() if machine == EXT4 else []), sys.executable]
    command += ["-m", "tests.faults.run_cell", cell.name, "--directory", str(own), "--network", network]
    command += ["--machine", machine]
    command += ["--seconds", str(fault_s), "--session-timeout-ms", str(session_timeout_ms)]
    command += ["--bank"] if has_bank else []
    timeout_s = _CELL_TIMEOUT_S + (_BANK_TIMEOUT_S if has_bank else 0.0)
    with open(own / "cell.log", "wb") as log:
        child = subprocess.Popen(
            command,
            cwd=namespaces.CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=die_with_parent,
        )
        try:
            said, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return Verdict(cell.name, network, Findings(), error=f"timed out after {timeout_s:.0f} s")
    lines = said.decode().splitlines()
    if child.returncode != 0 or not lines:
        return Verdict(
            cell.name, network, Findings(), error=f"exit status {child.returncode}: {own}/cell.log"
        )
    verdict = Verdict.from_json(lines[-1])
    if verdict.holds:
        shutil.rmtree(own, ignore_errors=True)
    return verdict


def _print(verdict: Verdict) -> None:
    found = verdict.findings
    print(
        _COLUMNS.format(
            verdict.name,
            verdict.network if verdict.machine == PLAIN else verdict.machine,
            found.acknowledged,
            found.consumed,
            found.lost,
            found.duplicated,
            f"{verdict.longest_pause_s:.1f}",
        ),
        f"  {verdict.bank}" if verdict.bank else "",
        "" if verdict.holds else f"  FAILED: {verdict.troubles}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="fault-matrix.sh",
        description="Inject faults into a cluster of three brokers, and into ZooKeeper, while librdkafka and "
        "our client write; then read every record back. Prints one line per cell and, last, the totals.",
    )
    parser.add_argument(
        "--cells", metavar="PATTERN", default="*", help="run only matching cells, such as leader/*/plain [*]"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cells and exit")
    parser.add_argument(
        "--seconds",
        type=float,
        default=30.0,
        metavar="N",
        help="length of a pause, cut or outage, in seconds [30]",
    )
    parser.add_argument(
        "--network", choices=(NAMESPACES, RELAYS), help="how brokers are cut off [namespaces, if possible]"
    )
    parser.add_argument(
        "--machine",
        choices=(EXT4, HOOKS),
        help="disks that fill up or lose power: mounted from a file, or hooks in Python [ext4, if possible]",
    )
    parser.add_argument(
        "--together",
        type=int,
        default=TOGETHER,
        metavar="N",
        help=f"number of cells run at the same time [{TOGETHER}]",
    )
    parser.add_argument(
        "--bank",
        action="store_true",
        help="also transfer money by transactions, and have auditors check that the sum never differs",
    )
    arguments = parser.parse_args()
    cells = [cell for cell in ALL_CELLS if fnmatch.fnmatchcase(cell.name, arguments.cells)]
    if arguments.list:
        print(*(cell.name for cell in cells), sep="\n")
        return 0
    if not cells:
        parser.error(f"no cell matches {arguments.cells}; --list prints the names")
    directory = Path(tempfile.mkdtemp(prefix="holdfast-faults-"))
    began, total, held = time.monotonic(), Findings(), 0
    print(_COLUMNS.format(*_HEADINGS), flush=True)
    for verdict in run_cells(
        cells,
        directory,
        fault_s=arguments.seconds,
        network=arguments.network,
        machine=arguments.machine,
        together=arguments.together,
        has_bank=arguments.bank,
    ):
        _print(verdict)
        total += verdict.findings
        held += verdict.holds
    if held == len(cells):
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"logs and data of the failed cells: {directory}")
    print(
        f"{held} of {len(cells)} cells held in {time.monotonic() - began:.0f} s: "
        f"{total.acknowledged} acknowledged, {total.consumed} consumed, {total.lost} lost, "
        f"{total.duplicated} duplicated"
    )
    return 0 if held == len(cells) else 1


if __name__ == "__main__":
    sys.exit(main())
