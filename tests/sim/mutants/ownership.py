"""Bugs of ownership and of conditional appends. Each has occurred in a system with leases or fencing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast_log.broker.ownership import (
    claims,
    fence_commits,
    grants,
    operations,
    restoring,
    rules,
    standings,
)
from holdfast_log.broker.ownership.claims import Claim
from holdfast_log.broker.ownership.effects import Write
from holdfast_log.broker.ownership.fence_commits import FenceCommits
from holdfast_log.broker.ownership.guards import WriterGuard
from holdfast_log.broker.ownership.interludes import AbsentWriterGuard
from holdfast_log.broker.ownership.record_loading import RecordLoading
from holdfast_log.broker.ownership.record_writing import RecordWriting
from holdfast_log.broker.ownership.renewals import Renewals
from holdfast_log.broker.ownership.resources import Entry, Requester, Resource
from holdfast_log.broker.ownership.rules import ClaimRefused, Granted, Verdict, judge_claim
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.conditions import Conditions
from holdfast_log.coordinator.ownership.records import NO_OFFSET, Grant, History, OwnershipRecord
from holdfast_log.coordinator.ownership.store import FoundRecord, Replacement
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import IF_FREE, LossReason, ResourceStanding
from tests.sim.mutation import Mutation, Patch


def _check_at_the_socket_only() -> Sequence[Patch]:
    return [(WriterGuard, "admit", lambda self, origin, acks: None)]


def _clear_the_thief() -> Sequence[Patch]:
    closed = OwnershipTable.connection_closed

    def mutant(self: OwnershipTable, connection: int, now_ms: int) -> None:
        holdings = self.holdings(connection)
        for key in holdings.keys if holdings is not None else ():
            resource = self.resource(key)
            for entry in resource.entries.values() if resource is not None else ():
                if entry.grant is not None:
                    entry.connection = connection
        closed(self, connection, now_ms)

    return [(OwnershipTable, "connection_closed", mutant)]


def _grant_before_it_is_written() -> Sequence[Patch]:
    async def mutant(self: RecordWriting, write: Write) -> None:
        replacements = [
            Replacement(item.key, item.record, item.version, self._decided.deciding_partition(item.key))
            for item in write.items
        ]
        versions = {item.key: item.version + 1 for item in write.items}
        self._table.written(write.number, versions, self._now_ms())
        self._table_changed()
        try:
            await self._store.write(replacements)
        except Exception:
            return

    return [(RecordWriting, "write", mutant)]


def _begin_anew_at_one() -> Sequence[Patch]:
    load = RecordLoading.load

    def mutant(self: RecordLoading, found: FoundRecord) -> None:
        if found.record is not None:
            found = replace(found, record=OwnershipRecord(0, {}))
        load(self, found)

    return [(RecordLoading, "load", mutant)]


def _let_zombies_resume() -> Sequence[Patch]:
    def mutant(resource: Resource, entry: Entry, grant: Grant, requester: Requester) -> bool:
        return grant.owner.owner_id == requester.owner.owner_id

    return [(operations, "can_resume", mutant)]


def _believe_owner_ids() -> Sequence[Patch]:
    def mutant(self: Requester, grant: Grant, connection: int | None) -> bool:
        return grant.owner.assignment is None and grant.owner.owner_id == self.owner.owner_id

    return [(Requester, "owns", mutant)]


def _judge_the_condition_first() -> Sequence[Patch]:
    judge = Conditions.judge

    def mutant(self: Conditions, appends: Sequence[Append], origin: Any, acks: int) -> None:
        for append in appends:
            if append.condition is not None and append.error is None and append.is_duplicate:
                append.error = self._refusal(append, origin, acks)
        judge(self, appends, origin, acks)

    return [(Conditions, "judge", mutant)]


def _evict_before_the_claim_is_judged() -> Sequence[Patch]:
    turn_away = Claim._turn_away

    def mutant(self: Claim, state: TableState, verdicts: Any, now_ms: int) -> Any:
        for wanted, verdict in verdicts:
            resource = state.resource(wanted.key)
            is_stale = isinstance(verdict, ClaimRefused) and verdict.error.code == ErrorCode.STALE_GENERATION
            for entry in resource.entries.values() if is_stale else ():
                if entry.grant is not None:
                    state._lose(resource, entry, LossReason.STOLEN)
        return turn_away(self, state, verdicts, now_ms)

    return [(Claim, "_turn_away", mutant)]


def _take_without_a_raise() -> Sequence[Patch]:
    def mutant(
        resource: Resource, requester: Requester, generation: int, *, may_wait: bool = False
    ) -> Verdict:
        verdict = judge_claim(resource, requester, generation, may_wait=may_wait)
        entry = resource.entries.get(requester.group)
        if isinstance(verdict, Granted) and entry is not None and generation == entry.generation > 0:
            return Granted(generation, verdict.reason)
        return verdict

    return [(claims, "judge_claim", mutant)]


def _raise_without_a_bound() -> Sequence[Patch]:
    return [(rules, "GENERATION_RAISE_MAX", 2**62)]


def _let_stale_claims_take() -> Sequence[Patch]:
    def mutant(
        resource: Resource, requester: Requester, generation: int, *, may_wait: bool = False
    ) -> Verdict:
        verdict = judge_claim(resource, requester, generation, may_wait=may_wait)
        entry = resource.entries.get(requester.group)
        is_stale = isinstance(verdict, ClaimRefused) and verdict.error.code == ErrorCode.STALE_GENERATION
        return Granted(entry.generation + 1) if is_stale and entry is not None else verdict

    return [(claims, "judge_claim", mutant)]


def _let_claims_of_free_resources_take() -> Sequence[Patch]:
    def mutant(
        resource: Resource, requester: Requester, generation: int, *, may_wait: bool = False
    ) -> Verdict:
        verdict = judge_claim(resource, requester, generation, may_wait=may_wait)
        entry = resource.entries.get(requester.group)
        is_owned = entry is not None and entry.grant is not None
        if is_owned and generation == IF_FREE and isinstance(verdict, ClaimRefused):
            assert entry is not None
            return Granted(entry.generation + 1)
        return verdict

    return [(claims, "judge_claim", mutant)]


def _tell_lower_fences() -> Sequence[Patch]:
    owned = standings.owned

    def mutant(*arguments: Any) -> ResourceStanding:
        standing = owned(*arguments)
        if standing.fence_offset > 0:
            standing.fence_offset = max(standing.fence_offset - 3, 0)
        return standing

    return [(standings, "owned", mutant)]


def _answer_before_the_fence_is_committed() -> Sequence[Patch]:
    return [(FenceCommits, "is_committed", lambda self, fence: True)]


def _do_not_wait_for_followers() -> Sequence[Patch]:
    """Fences settle as soon as the high watermark has reached them."""
    return [
        (
            fence_commits,
            "_is_settled",
            lambda partition, fence: partition.high_watermark >= fence.offset,
        )
    ]


def _write_fences_at_once() -> Sequence[Patch]:
    return [(Entry, "written", property(lambda entry: entry.history))]


def _leave_out_fences_until_settled_again() -> Sequence[Patch]:
    """A leader that writes a record before it has settled a fence again removes the fence from it."""

    def written(entry: Entry) -> History:
        if entry.is_complete or not entry.history:
            return entry.history
        return (*entry.history[:-1], replace(entry.history[-1], fence_offset=NO_OFFSET))

    return [(Entry, "written", property(written))]


def _raise_fences_at_reload() -> Sequence[Patch]:
    """A leader that loads a record again gives each of its owners the end of the log as the fence."""
    restore_owner = restoring.restore_owner

    def mutant(
        state: TableState, resource: Resource, entry: Entry, before: Entry | None, now_ms: int
    ) -> None:
        restore_owner(state, resource, entry, before, now_ms)
        assert entry.last is not None
        fence = grants.fence_of(state, resource.key, entry.group, entry.last)
        if fence is not None and before is not None:
            entry.amend(replace(entry.last, fence_offset=fence.offset))

    return [(restoring, "restore_owner", mutant)]


def _let_strangers_in() -> Sequence[Patch]:
    return [(AbsentWriterGuard, "admit", lambda self, origin, acks: None)]


def _let_strangers_in_at_once() -> Sequence[Patch]:
    """A stranger's append lands while the end of the grant is being written."""
    admit = AbsentWriterGuard.admit

    def mutant(self: AbsentWriterGuard, origin: Any, acks: int) -> None:
        make_way = admit(self, origin, acks)
        if make_way is not None:
            make_way(5000)

    return [(AbsentWriterGuard, "admit", mutant)]


def _let_readers_come_back() -> Sequence[Patch]:
    return [(Entry, "has_absent_reader", property(lambda entry: False))]


MUTATIONS = (
    Mutation(
        "owner-checked-at-the-socket",
        "the loser's connection is severed, but appends are not checked where offsets are assigned",
        _check_at_the_socket_only,
    ),
    Mutation(
        "thief-cleared",
        "the late close of the loser's connection frees the resource of the new owner",
        _clear_the_thief,
    ),
    Mutation(
        "granted-before-written",
        "a claim is granted before it is written to ZooKeeper",
        _grant_before_it_is_written,
    ),
    Mutation(
        "generations-begin-anew", "a new leader starts counting generations at 1 again", _begin_anew_at_one
    ),
    Mutation(
        "owner-id-believed",
        "a client that names the owner id of another repeats its claim, and resumes and releases its grant",
        _believe_owner_ids,
    ),
    Mutation("zombie-resumes", "an owner that was fenced may resume when it wakes up", _let_zombies_resume),
    Mutation(
        "condition-before-dedupe",
        "the retry of a conditional append that succeeded is refused",
        _judge_the_condition_first,
    ),
    Mutation(
        "evicted-before-judged",
        "a claim that is refused ends the present ownership",
        _evict_before_the_claim_is_judged,
    ),
    Mutation(
        "equal-generation-not-raised",
        "a claim with the generation in force takes the resource under the same number",
        _take_without_a_raise,
    ),
    Mutation(
        "raised-without-a-bound",
        "a claim may name any higher generation, so that no claim can name one above it",
        _raise_without_a_bound,
    ),
    Mutation(
        "stale-claim-granted",
        "a claim that names an earlier generation takes the resource",
        _let_stale_claims_take,
    ),
    Mutation(
        "free-claim-takes",
        "a claim of a free resource takes one that has an owner",
        _let_claims_of_free_resources_take,
    ),
    Mutation(
        "fence-told-too-low",
        "an owner is told a fence offset that lies three records before its own",
        _tell_lower_fences,
    ),
    Mutation(
        "fence-not-committed",
        "a claim is answered before all records below its fence are committed",
        _answer_before_the_fence_is_committed,
    ),
    Mutation(
        "fence-before-followed",
        "an owner is confirmed while a replica that may lead next still has a former owner's records",
        _do_not_wait_for_followers,
    ),
    Mutation(
        "stranger-ends-nothing",
        "an owner that was gone resumes its grant although strangers have written in between",
        _let_strangers_in,
    ),
    Mutation(
        "foreign-fetch-ends-nothing",
        "a reader that was gone resumes its grant although its group has read in between",
        _let_readers_come_back,
    ),
)

RARE = (
    Mutation(
        "stranger-before-written",
        "a stranger's append lands before the end of the absent owner's grant is durable",
        _let_strangers_in_at_once,
    ),
    Mutation(
        "answered-owner-not-pinged",
        "an owner that stands still after an answered Renew keeps what others want for its session timeout",
        lambda: [(Renewals, "relies_on_ping", lambda self, connection: False)],
    ),
    Mutation(
        "fence-written-before-followed",
        "the next leader finds a fence that lies before records of a former owner, which only it has",
        _write_fences_at_once,
    ),
    Mutation(
        "settled-fence-left-out",
        "a new leader writes a record without a fence that an earlier leader has settled",
        _leave_out_fences_until_settled_again,
    ),
    Mutation(
        "known-fence-raised",
        "a leader that loads a record again tells an owner a higher fence than before",
        _raise_fences_at_reload,
    ),
)
"""For most of these a leader has to be replaced within a moment, or twice, by a replica that was never in
touch with it. `tests/sim/test_rare_bugs.py` catches these bugs by fixed scenarios."""
