"""Checks the specification with TLC: python -m tests.spec.check --model small."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click

from tests.spec.tlc import SpecModel, SpecVerdict, TlcMissing, fetch_jar, find_jar, run

LEASES = SpecModel("small-leases", "Ownership", "small-leases.cfg")
FENCES = SpecModel("small-fences", "Ownership", "small-fences.cfg")
LEADERS = SpecModel("small-leaders", "Ownership", "small-leaders.cfg")
STRANGERS = SpecModel("small-strangers", "Ownership", "small-strangers.cfg")
SMALL_LOG = SpecModel("small-log", "Log", "small-log.cfg")
JOINS = SpecModel("small-joins", "Log", "small-joins.cfg")
TRANSACTIONS = SpecModel("small-transactions", "Transactions", "small-transactions.cfg")
FULL = SpecModel("full", "Ownership", "full.cfg", traces=5_000, trace_steps=100)
FULL_LOG = SpecModel("full-log", "Log", "full-log.cfg", traces=5_000, trace_steps=100)
MODELS = {
    "small": (LEASES, FENCES, LEADERS, STRANGERS, SMALL_LOG, JOINS, TRANSACTIONS),
    "full": (FULL, FULL_LOG),
}


@dataclass(frozen=True, slots=True)
class WrongStep:
    """A wrong step that a model can allow, and the property that must then be violated."""

    bug: str
    model: SpecModel
    violates: str


WRONG_STEPS = (
    WrongStep("owner-checked-at-the-socket", FENCES, "NoStaleAppend"),
    WrongStep("thief-cleared", LEASES, "GrantsEndForAReason"),
    WrongStep("granted-before-written", LEASES, "ConfirmedIsWritten"),
    WrongStep("generations-begin-anew", LEASES, "IncarnationsRise"),
    WrongStep("zombie-resumes", LEASES, "ConfirmedIsWritten"),
    WrongStep("evicted-before-judged", LEASES, "GrantsEndForAReason"),
    WrongStep("equal-generation-not-raised", LEASES, "IncarnationsRise"),
    WrongStep("promoted-without-a-raise", LEASES, "IncarnationsRise"),
    WrongStep("stale-claim-granted", LEASES, "StaleClaimsAreRefused"),
    WrongStep("fence-not-committed", FENCES, "FenceIsCommitted"),
    WrongStep("fence-before-followed", LEADERS, "NoStaleAppend"),
    WrongStep("fence-written-before-followed", LEADERS, "NoStaleAppend"),
    WrongStep("stranger-ends-nothing", STRANGERS, "NobodyWritesWithinAGrant"),
    WrongStep("stranger-before-written", STRANGERS, "NobodyWritesWithinAGrant"),
    WrongStep("leadership-not-checked", LEASES, "IncarnationsRise"),
    WrongStep("lease-never-ends", LEASES, "AtMostOneConfirmed"),
    WrongStep("moved-without-yield", LEASES, "AtMostOneConfirmed"),
    WrongStep("confirms-before-orders", LEASES, "AtMostOneConfirmed"),
    WrongStep("condition-before-dedupe", SMALL_LOG, "RefusedIsNowhere"),
    WrongStep("condition-not-checked", SMALL_LOG, "SuccessFoundTheExpectedEnd"),
    WrongStep("refused-without-lease", SMALL_LOG, "RefusedIsNowhere"),
    WrongStep("refused-before-heard", SMALL_LOG, "RefusedIsNowhere"),
    WrongStep("settled-by-former-leader", SMALL_LOG, "AcknowledgedStays"),
    WrongStep("alone-without-lease", SMALL_LOG, "AcknowledgedStays"),
    WrongStep("counts-proposed-follower", JOINS, "AcknowledgedStays"),
    WrongStep("shrinks-before-written", SMALL_LOG, "CommittedStays"),
    WrongStep("leader-epoch-kept", SMALL_LOG, "CommittedStays"),
    WrongStep("high-watermark-at-log-end", JOINS, "CommittedStays"),
    WrongStep("majority-commits", JOINS, "CommittedStays"),
    WrongStep("open-records-ignored", TRANSACTIONS, "NoChangeIsLost"),
    WrongStep("aborted-record-counts", TRANSACTIONS, "NoChangeIsLost"),
    WrongStep("refusal-overlooked", TRANSACTIONS, "AllOrNone"),
    WrongStep("not-verified", TRANSACTIONS, "NothingHangs"),
    WrongStep("marked-before-decided", TRANSACTIONS, "MarkersFollowDecisions"),
    WrongStep("grant-unchecked", TRANSACTIONS, "LostOwnerDoesNotCommit"),
    WrongStep("starts-unsettled", TRANSACTIONS, "OwnerKnowsThePast"),
)


@click.command(context_settings={"max_content_width": 100})
@click.option("--model", "size", type=click.Choice(sorted(MODELS)), default="small", show_default=True)
@click.option("--mutations", is_flag=True, help="Allow each wrong step in turn, and see that TLC finds it.")
@click.option(
    "--timeout-s",
    type=click.FloatRange(min=1),
    default=600,
    show_default=True,
    help="Limit of each run, in s.",
)
@click.option("--seed", type=int, help="Seed of the random behaviours of --model full.")
def main(size: str, mutations: bool, timeout_s: float, seed: int | None) -> None:
    """Check the specification in docs/spec with the model checker TLC.

    The small model is checked in full; of the full one, random behaviours are checked. The exit status is 0
    only if every property holds, and with --mutations only if each wrong step violates its property.
    """
    try:
        if shutil.which("java") is None:
            raise TlcMissing(
                "there is no java on PATH. Install a Java runtime, 11 or later (Debian: default-jre)"
            )
        jar = find_jar() or fetch_jar()
    except TlcMissing as error:
        raise click.ClickException(str(error)) from error
    failures = 0
    if mutations:
        for wrong in WRONG_STEPS:
            verdict = run(jar, wrong.model, bug=wrong.bug, timeout_s=timeout_s)
            click.echo(described_step(wrong, verdict))
            failures += verdict.violated != wrong.violates
    else:
        for model in MODELS[size]:
            verdict = run(jar, model, timeout_s=timeout_s, seed=seed)
            for line in described(model, verdict):
                click.echo(line)
            failures += not verdict.holds
    sys.exit(1 if failures else 0)


def described(model: SpecModel, verdict: SpecVerdict) -> Iterator[str]:
    """Lines about a model that was checked; TLC's own output where not everything holds."""
    checked = ", ".join(model.properties)
    yield f"{model.name}: {model.module}.tla with {model.configuration}"
    yield f"  checked: {checked}"
    if model.traces:
        steps = f"{model.traces:,} random behaviours of up to {model.trace_steps} steps"
        yield f"  {steps}: {verdict.states:,} states"
    else:
        yield f"  {verdict.states:,} states, {verdict.distinct:,} distinct, depth {verdict.depth}"
    if verdict.violated is not None:
        yield verdict.output
        yield f"  VIOLATED: {verdict.violated}"
    elif not verdict.is_complete:
        yield verdict.output
        yield "  NOT FINISHED: TLC failed, or the time limit (--timeout-s) has passed"
    else:
        yield "  everything holds"


def described_step(wrong: WrongStep, verdict: SpecVerdict) -> str:
    """One line about a wrong step."""
    what = f"{wrong.bug:32} {wrong.model.name:10}"
    if verdict.violated == wrong.violates:
        return f"{what} found: {wrong.violates} violated after {verdict.states:,} states"
    if verdict.violated is not None:
        return f"{what} FOUND ELSEWHERE: {verdict.violated} violated instead of {wrong.violates}"
    why = "all states seen" if verdict.is_complete else "TLC failed, or the time limit has passed"
    return f"{what} NOT FOUND: {wrong.violates} holds ({why})"


if __name__ == "__main__":
    main()
