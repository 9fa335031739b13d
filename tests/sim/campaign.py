"""Runs many seeds, with one process per processor by default. `scripts/simulate.sh` starts this module.

The exit status is 0 only if no seed failed and clusters recovered in the time of the run before (with
--mutations: if every mutation was caught).
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.sim.account import account
from tests.sim.mutations import MUTATIONS, RARE, SEEDS_PER_MUTATION, by_name, hunt
from tests.sim.parts import in_full
from tests.sim.plan import SHAPES
from tests.sim.recovery_record import RecoveryRecord
from tests.sim.recovery_times import Distribution, distribution
from tests.sim.scenario import Verdict, run_seed
from tests.sim.shrink import Variant, shrink

_SHRUNK_MAX = 3
"""Number of failing seeds that a campaign shrinks, because shrinking one takes about a minute. Later failing
seeds are only reported."""
_RECORDS = Path(__file__).parent.parent.parent / "var" / "simulation"
_SEEDS_PER_ROUND = 20
"""Number of seeds that each known bug gets in one round. It divides `SEEDS_PER_MUTATION`."""


@dataclass(slots=True)
class Tally:
    """Totals over the verdicts of several seeds."""

    seeds: int = 0
    held: int = 0
    simulated_s: float = 0.0
    operations: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    recoveries_s: list[float] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.held += verdict.holds
        self.simulated_s += verdict.simulated_s
        self.operations += verdict.operations
        self.faults += verdict.faults
        self.recoveries_s += verdict.recoveries_s

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


def report_failure(failing: Variant, verdict: Verdict) -> None:
    print(f"\nseed {verdict.seed} FAILED:")
    for line in account(failing.plan(), verdict):
        print(f"  {line}")
    print(f"  to replay: {failing.command()} --trace\n", flush=True)


def report_shrunk(failing: Variant, verdict: Verdict) -> None:
    """Shrink a failing seed, and describe the smallest variant that still fails."""
    print(f"\nseed {verdict.seed} FAILED: {verdict.violations[0].strip().splitlines()[-1]}")
    print(f"  to replay: {failing.command()} --trace")
    print("  leaving out what the failure does not need …", flush=True)
    smallest = shrink(failing, verdict)
    report_failure(smallest, smallest.run(keep_lines=None))


def _replay(failing: Variant, *, whole_trace: bool, is_shrunk: bool) -> int:
    verdict = failing.run(keep_lines=None)
    if whole_trace:
        print(*verdict.trace, sep="\n")
    if not verdict.holds:
        report = report_shrunk if is_shrunk else report_failure
        report(failing, verdict)
    tally = Tally()
    tally.add(verdict)
    print(f"seed {verdict.seed}, trace {verdict.digest} of {verdict.events} events: {dict(verdict.faults)}")
    print(tally)
    return 0 if verdict.holds else 1


def _campaign(first: int, count: int, shape: str, processes: int) -> int:
    tally, began = Tally(), time.monotonic()
    for verdict in run_seeds(range(first, first + count), shape, processes):
        tally.add(verdict)
        if not verdict.holds:
            report = report_shrunk if tally.seeds - tally.held <= _SHRUNK_MAX else report_failure
            report(Variant(verdict.seed, shape), verdict)
        if tally.seeds % 100 == 0:
            print(f"{tally}; {time.monotonic() - began:.0f} s", flush=True)
    print(*(f"{name}: {count}" for name, count in sorted(tally.faults.items())), sep=", ")
    are_timely = not tally.recoveries_s or _recovered_in_time(
        distribution(tally.recoveries_s), _RECORDS / f"recoveries-{shape}-{first}-{count}.json"
    )
    print(tally)
    return 0 if tally.held == tally.seeds and are_timely else 1


def _recovered_in_time(now: Distribution, record: Path) -> bool:
    """Print how long recoveries took, now and in the run before. Returns whether that is acceptable."""
    comparison, is_acceptable = RecoveryRecord(record).compare(now)
    print(f"{now.count} recoveries: acks=all was accepted again after {now}; {comparison}")
    return is_acceptable


def _mutations(names: list[str], first: int, processes: int) -> int:
    """Put known bugs back and run seeds until each is caught.

    In each round every bug that is not caught yet gets the next few seeds. So no process is idle for long
    until fewer bugs than processes are left.
    """
    known = (*MUTATIONS, *RARE) if names else MUTATIONS
    chosen = [mutation.name for mutation in known if not names or mutation.name in names]
    uncaught = dict.fromkeys(chosen)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for seed in range(first, first + SEEDS_PER_MUTATION, _SEEDS_PER_ROUND):
            for name, found in pool.imap_unordered(partial(_hunt, seed), list(uncaught), chunksize=1):
                if found is not None:
                    del uncaught[name]
                    catching, _, violation = found
                    tried = catching - first + 1
                    print(f"caught  {name}: by seed {catching}, after {tried} seeds: {violation}", flush=True)
    for name in uncaught:
        print(f"MISSED  {name}: not caught within {SEEDS_PER_MUTATION} seeds")
    print(f"caught {len(chosen) - len(uncaught)} of {len(chosen)}")
    return 1 if uncaught else 0


def _hunt(seed: int, name: str) -> tuple[str, tuple[int, int, str] | None]:
    """The name, and the result of `hunt` in the seeds of one round, which begins with this seed."""
    return name, hunt(by_name(name), seed, _SEEDS_PER_ROUND)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="simulate.sh",
        description="Simulate clusters under faults, each drawn from a seed, and judge them. The last line "
        "counts seeds, simulated hours, operations and faults.",
    )
    parser.add_argument("--seeds", type=int, default=300, metavar="N", help="number of seeds (default: 300)")
    parser.add_argument("--first-seed", type=int, default=1, metavar="S", help="first seed (default: 1)")
    parser.add_argument(
        "--shape", choices=sorted(SHAPES), default="three", help="brokers in the cluster (default: three)"
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed and print its outcome")
    parser.add_argument("--trace", action="store_true", help="with --replay: print every event")
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="with --replay: if the seed fails, leave out what the failure does not need",
    )
    parser.add_argument(
        "--without",
        nargs="+",
        default=[],
        metavar="PART",
        help="with --replay: leave out faults, clients and topics, such as fault2-5 or p1",
    )
    parser.add_argument(
        "--from",
        dest="from_s",
        type=float,
        default=0.0,
        metavar="S",
        help="with --replay: leave out the first S seconds in which faults happen",
    )
    parser.add_argument(
        "--until",
        dest="until_s",
        type=float,
        default=math.inf,
        metavar="S",
        help="with --replay: end the faults after as many seconds as if nothing were left out",
    )
    parser.add_argument(
        "--luck",
        type=int,
        default=0,
        metavar="N",
        help="with --replay: draw differently what the plan leaves open",
    )
    parser.add_argument("--bug", metavar="NAME", help="with --replay: put a known bug back")
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
    return parser


def variant(words: Sequence[str]) -> Variant:
    """The variant that these words of a command line select for a replay."""
    return _variant(_parser().parse_args(words))


def _variant(arguments: argparse.Namespace) -> Variant:
    return Variant(
        arguments.replay,
        arguments.shape,
        tuple(in_full(arguments.without)),
        arguments.from_s,
        arguments.until_s,
        arguments.luck,
        arguments.bug,
    )


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.mutations is not None:
        return _mutations(arguments.mutations, arguments.first_seed, arguments.processes)
    if arguments.replay is not None:
        return _replay(_variant(arguments), whole_trace=arguments.trace, is_shrunk=arguments.shrink)
    return _campaign(arguments.first_seed, arguments.seeds, arguments.shape, arguments.processes)


if __name__ == "__main__":
    sys.exit(main())
