"""Whether the checker finds each known bug, in real processes, and how soon.

scripts/check-history.sh --planted-bugs
scripts/check-history.sh --planted-bugs --all-clients --seconds 45
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast_log.checker.cluster import checked_cluster
from tests.checker.planted_bugs import PLANTED, Hunt, PlantedBug, hunt, hunt_by_all
from tests.checker.planting import Planting

_SHOWN = 110


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--seconds", default=60.0, show_default=True, help="How long clients drive the cluster per bug."
)
@click.option("--bug", "names", multiple=True, help="Plant this bug only; may be given several times.")
@click.option(
    "--all-clients",
    is_flag=True,
    help="For each bug, drive a cluster of its own by all clients and under all faults, and not only by "
    "those that should show it.",
)
def main(seconds: float, names: tuple[str, ...], all_clients: bool) -> None:
    """Put known bugs back in the brokers of a cluster, one at a time, and see that the checker finds each.

    Prints a line for each bug: whether it was found, after how many seconds, and by which violation. The last
    line has the counts. The exit status is 0 only if every bug was found, by a rule that is meant for it.
    """
    logging.getLogger("holdfast").addHandler(logging.NullHandler())  # Clients warn at every fault.
    unknown = set(names) - {bug.name for bug in PLANTED}
    if unknown:
        known = ", ".join(bug.name for bug in PLANTED)
        raise click.BadParameter(f"{sorted(unknown)} are not in {known}", param_hint="--bug")
    bugs = [bug for bug in PLANTED if not names or bug.name in names]
    with tempfile.TemporaryDirectory(prefix="holdfast-planted-") as directory:
        if all_clients:
            missed = _hunt_by_all(Path(directory), bugs, seconds)
        else:
            missed = _hunt(Path(directory), bugs, seconds)
    click.echo(f"found {len(bugs) - missed} of {len(bugs)}")
    sys.exit(1 if missed else 0)


def _hunt(directory: Path, bugs: Sequence[PlantedBug], seconds: float) -> int:
    planting = Planting(directory / "planting")
    with checked_cluster(directory / "cluster", planting.python_arguments) as cluster:
        return sum(not _show(bug, hunt(cluster, planting, bug, seconds, lambda line: None)) for bug in bugs)


def _hunt_by_all(directory: Path, bugs: Sequence[PlantedBug], seconds: float) -> int:
    return sum(not _show(bug, hunt_by_all(directory / bug.name, bug, seconds)) for bug in bugs)


def _show(bug: PlantedBug, ended: Hunt) -> bool:
    """Print how a hunt ended. Returns whether the bug was found."""
    found = ended.found(bug)
    what = found or next(iter(ended.violations), "no violation")
    click.echo(f"{bug.name}: {'found' if found else 'missed'} after {ended.seconds:.1f} s: {what[:_SHOWN]}")
    for trouble in ended.troubles:
        click.echo(f"  TROUBLE: {trouble}")
    return found is not None


if __name__ == "__main__":
    main(prog_name="check-history.sh --planted-bugs")
