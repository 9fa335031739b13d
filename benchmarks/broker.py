"""Measures how fast a broker is: python -m benchmarks.broker --help.

Ends with one line of JSON. Results of different machines or times are hardly comparable: use --peer to
measure two brokers in turn in each case, and compare the ratios.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import produce_cost
from benchmarks.cases import Case, CaseError, librdkafka_cases, quick_cases, raw_cases, run
from benchmarks.results import HEADINGS, Result, best_of, columns, print_json, print_table, summary
from benchmarks.targets import Target
from holdfast_log.broker.tools.local_cluster import LocalCluster

PROPERTIES = {"message.max.bytes": str(4 * 2**20), "log.segment.bytes": str(512 * 2**20)}


@click.command()
@click.option("--quick", is_flag=True, help="Measure a few cases only, in one or two minutes.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.2),
    help="Seconds of load in each run. [default: 4, with --quick 1.5]",
)
@click.option(
    "--rounds",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Runs of each case; the fastest counts.",
)
@click.option("--only", metavar="TEXT", help="Measure only cases whose name contains TEXT.")
@click.option(
    "--part", metavar="K/N", help="Measure only the K-th of N parts of the cases, to split a long run."
)
@click.option("--bootstrap", metavar="HOST:PORT", help="Measure this broker instead of starting one.")
@click.option(
    "--peer", metavar="HOST:PORT", help="Measure this broker too, in turn with ours, and print ratios."
)
@click.option("--peer-pid", type=int, multiple=True, help="Process id of the peer, to measure its CPU time.")
@click.option(
    "--peer-log-dir",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Log directory of the peer, needed for cold fetches.",
)
@click.option("--directory", type=click.Path(path_type=Path), help="Directory for our broker's data.")
def main(
    quick: bool,
    seconds: float | None,
    rounds: int,
    only: str | None,
    part: str | None,
    bootstrap: str | None,
    peer: str | None,
    peer_pid: tuple[int, ...],
    peer_log_dir: tuple[Path, ...],
    directory: Path | None,
) -> None:
    """Measure a broker with librdkafka and with raw sockets, by default one started for the benchmark."""
    cases = [
        case
        for case in (quick_cases() if quick else raw_cases() + librdkafka_cases())
        if (only or "") in case.name
    ]
    number, parts = _part(part)
    cases = cases[number - 1 :: parts]
    seconds = seconds or (1.5 if quick else 4.0)
    with contextlib.ExitStack() as stack:
        own_directory = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-", dir=directory))
        stack.callback(shutil.rmtree, own_directory, ignore_errors=True)
        target = stack.enter_context(_our_target(own_directory, bootstrap))
        targets = [target]
        if peer:
            targets.append(Target("peer", peer, peer_pid, peer_log_dir))
        results = _run_all(cases, targets, seconds, rounds)
        report: dict[str, Any] = {
            "benchmark": "broker",
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
            "seconds_per_run": seconds,
            "cases": _report(cases, targets, results),
        }
        if not bootstrap and not only and number == parts:
            report["produce_request"] = _produce_request(own_directory / "profiled", target, seconds)
    print_json(report)


def _part(text: str | None) -> tuple[int, int]:
    """The value of `--part`: (which, of how many). Raises click.BadParameter."""
    if text is None:
        return 1, 1
    which, slash, of = text.partition("/")
    if not (slash and which.isdecimal() and of.isdecimal() and 1 <= int(which) <= int(of)):
        raise click.BadParameter(f"{text!r} is not like 2/5", param_hint="--part")
    return int(which), int(of)


@contextlib.contextmanager
def _our_target(directory: Path, bootstrap: str | None) -> Iterator[Target]:
    if bootstrap:
        yield Target("holdfast", bootstrap)
        return
    with LocalCluster(directory / "cluster", properties=PROPERTIES) as cluster:
        (broker,) = cluster.brokers
        yield Target("holdfast", cluster.bootstrap, (broker.pid,), tuple(broker.log_dirs))


def _run_all(
    cases: Sequence[Case], targets: Sequence[Target], seconds: float, rounds: int
) -> dict[tuple[Case, str], Result]:
    """Run every case against every target in turn; the first target changes from round to round."""
    results: dict[tuple[Case, str], list[Result]] = {}
    for number, case in enumerate(cases, start=1):
        for round_number in range(rounds):
            for target in targets if (number + round_number) % 2 else reversed(targets):
                try:
                    result = run(case, target, f"benchmark-{number}-{round_number}", seconds)
                except CaseError as error:
                    click.echo(f"[{number}/{len(cases)}] {case.name}, {target.name}: FAILED: {error}")
                    continue
                results.setdefault((case, target.name), []).append(result)
                click.echo(
                    f"[{number}/{len(cases)}] {case.name}, {target.name}: {result.mb_per_second:,.1f} MB/s"
                )
    return {key: best_of(runs) for key, runs in results.items()}


def _report(
    cases: Sequence[Case], targets: Sequence[Target], results: dict[tuple[Case, str], Result]
) -> list[dict[str, Any]]:
    """Print the table. Returns its values for the JSON."""
    rows: list[list[str]] = []
    report: list[dict[str, Any]] = []
    for case in cases:
        measured = {target.name: results.get((case, target.name)) for target in targets}
        ratio = _ratio([measured[target.name] for target in targets])
        for target in targets:
            result = measured[target.name]
            cells = columns(result) if result else ["failed", *[""] * (len(HEADINGS) - 1)]
            if len(targets) > 1:
                cells = [
                    target.name,
                    *cells,
                    "" if ratio is None or target is not targets[0] else f"{ratio:.2f}",
                ]
            rows.append([case.name, *cells])
        report.append(
            {"case": case.name, **{name: result and summary(result) for name, result in measured.items()}}
            | ({"ratio": ratio and round(ratio, 3)} if len(targets) > 1 else {})
        )
    headings = ["case", *(["broker"] if len(targets) > 1 else []), *HEADINGS]
    print_table("Broker", [*headings, "ratio"] if len(targets) > 1 else headings, rows)
    return report


def _ratio(results: Sequence[Result | None]) -> float | None:
    """Our throughput over the peer's."""
    match results:
        case [Result() as ours, Result() as theirs]:
            return ours.mb_per_second / theirs.mb_per_second
    return None


def _produce_request(directory: Path, target: Target, seconds: float) -> dict[str, Any]:
    cost = produce_cost.cost_us(produce_cost.measure(target, seconds))
    profile = produce_cost.profile(directory, seconds, PROPERTIES)
    shown = "unknown" if cost is None else f"{cost:.1f} µs"
    print_table(
        f"A produce request of one 16 KB batch costs the broker {shown} of CPU (aim: below "
        f"{produce_cost.AIM_US:.0f} µs). Profiled, the time goes to:",
        ["function", "calls per request", "share"],
        [[row.function, f"{row.calls_per_request:.2f}", f"{row.share:.1%}"] for row in profile],
    )
    return {
        "cpu_us": None if cost is None else round(cost, 1),
        "profile": [{"function": row.function, "share": round(row.share, 4)} for row in profile],
    }


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.broker")
