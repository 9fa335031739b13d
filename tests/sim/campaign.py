"""Runs many seeds, with one process per processor by default. Started by `scripts/simulate.sh`.

The exit status is 0 only if every seed held (with --mutations: if every mutation was caught).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from tests.sim.mutation import Mutation
from tests.sim.mutations import MUTATIONS, SEEDS_PER_MUTATION, hunt
from tests.sim.plan import SHAPES
from tests.sim.scenario import Verdict, run_seed

_TRACE_LINES = 120


@dataclass(slots=True)
class Tally:
    """Totals over the verdicts of several seeds."""

    seeds: int = 0
    held: int = 0
    simulated_s: float = 0.0
    operations: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.held += verdict.holds
        self.simulated_s += verdict.simulated_s
        self.operations += verdict.operations
        self.faults += verdict.faults

    def __str__(self) -> str:
        return (
            f"{self.held} of {self.seeds} seeds held: {self.simulated_s / 3600:.2f} simulated hours, "
            f"{self.operations} operations, {self.faults.total()} faults"
        )


def run_seeds(seeds: Iterable[int], shape: str, processes: int) -> Iterator[Verdict]:
    """Yield the verdict on each seed, in the order of `seeds`."""
    run = partial(_run_named, shape)
    if processes == 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(run, seeds, chunksize=1)


def _run_named(shape: str, seed: int) -> Verdict:
    return run_seed(seed, SHAPES[shape])


def relevant_lines(verdict: Verdict) -> list[str]:
    """The trace lines of a failing seed up to shortly after its first violation. Lines that name only
    partitions other than the violation's are left out."""
    lines = list(verdict.trace)
    named = re.search(r"\b[a-z]+-\d+\b", verdict.violations[0])
    if named:
        other = re.compile(r"\b[a-z]+-\d+\b")
        lines = [line for line in lines if named[0] in line or not other.search(line)]
    at = next((number for number, line in enumerate(lines) if "VIOLATION" in line), len(lines))
    return lines[max(0, at - _TRACE_LINES) : at + 10]


def report_failure(verdict: Verdict, shape: str) -> None:
    print(f"\nseed {verdict.seed} FAILED:")
    for violation in verdict.violations[:10]:
        print(f"  {violation.strip()}")
    if len(verdict.violations) > 10:
        print(f"  … and {len(verdict.violations) - 10} more")
    print("  trace:")
    for line in relevant_lines(verdict):
        print(f"    {line}")
    print(f"  to replay: scripts/simulate.sh --shape {shape} --replay {verdict.seed} --trace\n")


def _replay(seed: int, shape: str, *, whole_trace: bool) -> int:
    verdict = run_seed(seed, SHAPES[shape], keep_lines=None)
    if whole_trace:
        print(*verdict.trace, sep="\n")
    if not verdict.holds:
        report_failure(verdict, shape)
    tally = Tally()
    tally.add(verdict)
    print(f"seed {seed}, trace {verdict.digest} of {verdict.events} events: {dict(verdict.faults)}")
    print(tally)
    return 0 if verdict.holds else 1


def _campaign(first: int, count: int, shape: str, processes: int) -> int:
    tally, began = Tally(), time.monotonic()
    for verdict in run_seeds(range(first, first + count), shape, processes):
        tally.add(verdict)
        if not verdict.holds:
            report_failure(verdict, shape)
        if tally.seeds % 100 == 0:
            print(f"{tally}; {time.monotonic() - began:.0f} s", flush=True)
    print(*(f"{name}: {count}" for name, count in sorted(tally.faults.items())), sep=", ")
    print(tally)
    return 0 if tally.held == tally.seeds else 1


def _mutations(names: list[str], first: int, processes: int) -> int:
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    caught = 0
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
        hunts = pool.imap(partial(_hunt, first), [mutation.name for mutation in chosen], chunksize=1)
        for mutation, found in zip(chosen, hunts, strict=True):
            if found is None:
                print(f"MISSED  {mutation.name}: not caught within {SEEDS_PER_MUTATION} seeds", flush=True)
            else:
                caught += 1
                seed, tried, violation = found
                print(
                    f"caught  {mutation.name}: by seed {seed}, after {tried} seeds: {violation}", flush=True
                )
    print(f"caught {caught} of {len(chosen)}")
    return 0 if caught == len(chosen) else 1


def _hunt(first: int, name: str) -> tuple[int, int, str] | None:
    return hunt(_by_name(name), first)


def _by_name(name: str) -> Mutation:
    return next(mutation for mutation in MUTATIONS if mutation.name == name)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="simulate.sh",
        description="Simulate a cluster for one minute under faults, once for each seed, and check the "
        "results. The last line counts seeds, simulated hours, operations and faults.",
    )
    parser.add_argument("--seeds", type=int, default=300, metavar="N", help="number of seeds (default: 300)")
    parser.add_argument("--first-seed", type=int, default=1, metavar="S", help="first seed (default: 1)")
    parser.add_argument(
        "--shape", choices=sorted(SHAPES), default="three", help="brokers in the cluster (default: three)"
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed and print its outcome")
    parser.add_argument("--trace", action="store_true", help="with --replay: print every event")
    parser.add_argument(
        "--mutations",
        nargs="*",
        metavar="NAME",
        help="put back known bugs, one at a time, and check that each is caught within "
        f"{SEEDS_PER_MUTATION} seeds; default: all of {', '.join(mutation.name for mutation in MUTATIONS)}",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="number of processes (default: one per processor)",
    )
    arguments = parser.parse_args()
    if arguments.mutations is not None:
        return _mutations(arguments.mutations, arguments.first_seed, arguments.processes)
    if arguments.replay is not None:
        return _replay(arguments.replay, arguments.shape, whole_trace=arguments.trace)
    return _campaign(arguments.first_seed, arguments.seeds, arguments.shape, arguments.processes)


if __name__ == "__main__":
    sys.exit(main())
