"""Puts bugs into the compiled code, one at a time, and runs the tests that must fail then.

scripts/mutate-compiled.sh --help
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tests.mutated_c.bug import HOME, Bug
from tests.mutated_c.building import BuildError, build
from tests.mutated_c.importing import VARIABLE
from tests.mutated_c.tables import BUGS, by_name

_ENDED_S = 900.0
"""A bug may leave a loop without an end. The tests take seconds; on a busy machine, minutes."""
_OUTPUT_LINES = 40
_PASSED, _FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests did about a bug: whether they noticed it, and how; `output` is the end of theirs."""

    is_caught: bool
    how: str
    output: str


def hunt(bug: Bug, directory: Path) -> Verdict:
    """Build the bug's extensions in the directory, and run its tests with them."""
    try:
        built = build(directory, bug, bug.built)
    except (BuildError, ValueError) as error:
        return Verdict(False, "could not be built", str(error))
    return run(bug.tests, bug.also, built)


def run(tests: Sequence[str], words: str, built: dict[str, Path]) -> Verdict:
    """Run tests with these extensions until one fails. A process that crashes, or never ends, has noticed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "tests.mutated_c.importing"]
    if words:
        command += ["-k", words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment.pop("HOLDFAST_PURE_PYTHON", None)
    environment[VARIABLE] = json.dumps({name: str(path) for name, path in built.items()})
    environment["PYTHONPATH"] = str(HOME)
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=HOME,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_ENDED_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict(True, f"did not end in {_ENDED_S:.0f} s", "")
    output = "\n".join(done.stdout.splitlines()[-_OUTPUT_LINES:])
    if done.returncode == _FAILED:
        return Verdict(True, "failed", output)
    if done.returncode < 0:
        return Verdict(True, f"ended by signal {-done.returncode}", output)
    if done.returncode == _PASSED:
        return Verdict(False, "passed", output)
    return Verdict(False, f"could not be run: status {done.returncode}", output)


def check_without_bugs(bugs: Sequence[Bug]) -> list[str]:
    """Run the tests of all these bugs with extensions without bugs, built alike. Returns what failed."""
    failures = []
    runs = sorted({(bug.tests, bug.also, bug.built) for bug in bugs})
    for tests, words, extensions in runs:
        with tempfile.TemporaryDirectory() as directory:
            verdict = run(tests, words, build(Path(directory), None, extensions))
        if verdict.is_caught or verdict.how != "passed":
            failures.append(f"{' '.join(tests)}: {verdict.how}\n{verdict.output}")
    return failures


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "is_list", is_flag=True, help="Print all bugs, and end.")
@click.option("--without-bugs", is_flag=True, help="Run the same tests without any bug first: all must pass.")
def main(names: tuple[str, ...], is_list: bool, without_bugs: bool) -> None:
    """Put known bugs into the compiled code, one at a time, and see that tests fail with each.

    NAMES are those of the bugs; without any, all are tried. Each is built in a directory of its own, from a
    copy of the sources: the checkout stays as it is. Ends with `caught N of M`, and with status 1 if a bug
    was not caught.
    """
    try:
        bugs = [by_name(name) for name in names] or list(BUGS)
    except KeyError as error:
        raise click.UsageError(f"there is no bug {error}") from error
    if is_list:
        for bug in bugs:
            click.echo(f"{bug.name:42} {bug.what}")
        return
    failures = check_without_bugs(bugs) if without_bugs else []
    for failure in failures:
        click.echo(f"without a bug: {failure}")
    caught = 0
    for bug in bugs:
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            verdict = hunt(bug, Path(directory))
        caught += verdict.is_caught
        says = "caught" if verdict.is_caught else "NOT CAUGHT"
        click.echo(f"{bug.name:42} {says}: its tests {verdict.how} ({time.monotonic() - began_s:.0f} s)")
        if not verdict.is_caught:
            click.echo(verdict.output)
        sys.stdout.flush()
    click.echo(f"caught {caught} of {len(bugs)}")
    sys.exit(int(caught < len(bugs) or bool(failures)))


if __name__ == "__main__":
    main()
