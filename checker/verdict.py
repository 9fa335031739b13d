"""The verdict on a whole history: the violations of all rules, and the counts for the last line of output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast_log.checker.calls import Action, CallHistory, Outcome, OwnershipCall
from holdfast_log.checker.holders import holder_violations
from holdfast_log.checker.lists import list_violations
from holdfast_log.checker.logs import log_violations
from holdfast_log.checker.registers import register_violations


@dataclass(frozen=True, slots=True)
class HistoryVerdict:
    """The result of a check. `missing` names kinds of calls of which none succeeded, and written
    partitions that nobody read at the end: the history proves nothing about them."""

    operations: int
    confirmations: int
    takeovers: int
    appends: int
    transactions: int
    faults: int
    violations: Sequence[str]
    missing: Sequence[str]

    @property
    def holds(self) -> bool:
        return not self.violations and not self.missing

    def __str__(self) -> str:
        return (
            f"operations {self.operations}, confirmations {self.confirmations}, take-overs {self.takeovers}, "
            f"acknowledged appends {self.appends}, committed transactions {self.transactions}, "
            f"faults {self.faults}, violations {len(self.violations)}"
        )


def judge(history: CallHistory) -> HistoryVerdict:
    """Judge a history by all rules."""
    violations = [
        *holder_violations(history.ownership),
        *log_violations(history),
        *register_violations(history),
        *list_violations(history.transactions, {each.name: each.elements for each in history.lists}),
    ]
    confirmations = sum(call.is_confirmation for call in history.ownership)
    appends = sum(call.outcome is Outcome.DONE for call in history.appends)
    committed = sum(call.outcome is Outcome.DONE and bool(call.appends) for call in history.transactions)
    seen = {
        "a committed transaction": committed,
        "a read of a list": sum(bool(call.reads) for call in history.transactions),
    }
    if not history.transactions or history.ownership or appends or history.keys:  # Not only of lists.
        seen |= {
            "a confirmation of an owner": confirmations,
            "an acknowledged append": appends,
            "a read": len(history.reads),
            "a put or a get of a key": sum(call.outcome is Outcome.DONE for call in history.keys),
        }
    written = {(call.topic, call.partition) for call in history.appends}
    unread = written - {(log.topic, log.partition) for log in history.stored}
    unread -= {(log.topic, log.partition) for log in history.deleted}
    return HistoryVerdict(
        operations=(
            len(history.ownership)
            + len(history.appends)
            + len(history.reads)
            + len(history.keys)
            + len(history.transactions)
        ),
        confirmations=confirmations,
        takeovers=_takeovers(history.ownership),
        appends=appends,
        transactions=committed,
        faults=len(history.faults),
        violations=violations,
        missing=[
            *(what for what, count in seen.items() if not count),
            *(f"the stored records of {topic}-{partition}" for topic, partition in sorted(unread)),
        ],
    )


def _takeovers(calls: Sequence[OwnershipCall]) -> int:
    """How often a resource was granted to another client than the one before."""
    grants = {
        (call.resource, call.grant): call.client
        for call in calls
        if call.action is Action.CLAIM and call.outcome is Outcome.DONE
    }
    ordered = sorted(grants.items())
    return sum(
        former[0][0] == latter[0][0] and former[1] != latter[1] for former, latter in pairwise(ordered)
    )
