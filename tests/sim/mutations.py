"""All known bugs, put back one at a time: judges that miss a known bug would miss a new one too.

Each bug has occurred before, in Kafka or elsewhere.
"""

from __future__ import annotations

import re

from tests.sim.mutants import (
    access,
    admission,
    answers,
    append_ids,
    cleaning,
    clients,
    conditions,
    controller,
    elections,
    fences,
    flushing,
    following,
    group_readers,
    groups,
    hangs,
    high_watermarks,
    in_sync,
    keys,
    leases,
    log,
    markers,
    moves,
    names,
    ownership,
    poison,
    producers,
    quotas,
    replication,
    retention,
    rights,
    sasl,
    sequences,
    short_appends,
    storage,
    time,
    transaction_epochs,
    transaction_logs,
    transaction_owners,
    transactions,
    without_zookeeper,
)
from tests.sim.mutation import Mutation, mutated
from tests.sim.scenario import Verdict, run_seed

SEEDS_PER_MUTATION = 1000

MUTATIONS: tuple[Mutation, ...] = (
    *replication.MUTATIONS,
    *following.MUTATIONS,
    *high_watermarks.MUTATIONS,
    *in_sync.MUTATIONS,
    *log.MUTATIONS,
    *flushing.MUTATIONS,
    *sequences.MUTATIONS,
    *controller.MUTATIONS,
    *elections.MUTATIONS,
    *groups.MUTATIONS,
    *group_readers.MUTATIONS,
    *ownership.MUTATIONS,
    *names.MUTATIONS,
    *access.MUTATIONS,
    *append_ids.MUTATIONS,
    *conditions.MUTATIONS,
    *fences.MUTATIONS,
    *leases.MUTATIONS,
    *storage.MUTATIONS,
    *moves.MUTATIONS,
    *keys.MUTATIONS,
    *time.MUTATIONS,
    *retention.MUTATIONS,
    *quotas.MUTATIONS,
    *cleaning.MUTATIONS,
    *transactions.MUTATIONS,
    *markers.MUTATIONS,
    *transaction_logs.MUTATIONS,
    *transaction_epochs.MUTATIONS,
    *transaction_owners.MUTATIONS,
)

RARE: tuple[Mutation, ...] = (
    *admission.RARE,
    *answers.RARE,
    *short_appends.RARE,
    *clients.RARE,
    *poison.RARE,
    *sasl.RARE,
    *rights.RARE,
    *following.RARE,
    *in_sync.RARE,
    *controller.RARE,
    *group_readers.RARE,
    *hangs.RARE,
    *log.RARE,
    *high_watermarks.RARE,
    *access.RARE,
    *append_ids.RARE,
    *names.RARE,
    *fences.RARE,
    *leases.RARE,
    *without_zookeeper.RARE,
    *ownership.RARE,
    *conditions.RARE,
    *storage.RARE,
    *moves.RARE,
    *retention.RARE,
    *keys.RARE,
    *cleaning.RARE,
    *quotas.RARE,
    *producers.RARE,
    *transactions.RARE,
    *transaction_logs.RARE,
    *transaction_epochs.RARE,
    *transaction_owners.RARE,
)
"""Bugs that a campaign rarely catches, and hunts only if they are named. `tests/sim/test_rare_bugs.py` has a
fixed scenario for each."""


def by_name(name: str) -> Mutation:
    """The mutation of that name. Raises KeyError if there is none."""
    return {mutation.name: mutation for mutation in (*MUTATIONS, *RARE)}[name]


def hunt(mutation: Mutation, first_seed: int, seeds: int = SEEDS_PER_MUTATION) -> tuple[int, int, str] | None:
    """The first seed that catches a mutation, the number of seeds tried, and the violation; None if no seed
    catches it. A seed that also fails without the mutation does not count.
    """
    for tried, seed in enumerate(range(first_seed, first_seed + seeds), start=1):
        with mutated(mutation):
            verdict = run_seed(seed, mutation.shape, keep_lines=0)
        _check_mutant(mutation, verdict)
        if not verdict.holds and run_seed(seed, mutation.shape, keep_lines=0).holds:
            return seed, tried, verdict.violations[0].strip().splitlines()[-1]
    return None


def _check_mutant(mutation: Mutation, verdict: Verdict) -> None:
    """Raise RuntimeError if the mutant crashed: a crash proves nothing about the judges."""
    for violation in verdict.violations:
        if "/mutants/" in violation and re.search(
            "^(Type|Attribute|Name|Key|Unbound|Import)", violation, re.M
        ):
            raise RuntimeError(f"{mutation.name} does not fit the code that it mutates:\n{violation}")
