"""Bugs of log compaction."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any
from unittest import mock

from holdfast_log.broker.cleaning import cleaner, cleaning_pass, copying
from holdfast_log.broker.cleaning import plan as cleaning_plan
from holdfast_log.broker.cleaning.cleaner import Cleaner
from holdfast_log.broker.cleaning.cleaning_pass import CleaningPass
from holdfast_log.broker.cleaning.copying import GroupCopy
from holdfast_log.broker.cleaning.mapping import KeyMapping
from holdfast_log.broker.cleaning.plan import NO_LIMIT_MS, CleaningPlan, plan_of
from holdfast_log.broker.cleaning.turns import CleaningTurns, Rests
from holdfast_log.broker.log import names, preparation, recovery, replacement, truncation
from holdfast_log.broker.log.disk import Disk, DiskFile
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.replacement import is_current
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.segments import Segments
from holdfast_log.broker.replication import following
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol import compaction
from holdfast_log.protocol.batches import whole_batches
from holdfast_log.protocol.compaction import SLOT_BYTES, Filtered, Rules
from tests.sim.mutation import Mutation, Patch


def _beyond_the_high_watermark() -> Sequence[Patch]:
    def plan(log: Log, committed_offset: int, now_ms: int, horizon_ms: int = 0) -> CleaningPlan | None:
        return plan_of(log, log.log_end_offset, now_ms, horizon_ms)

    return [(cleaner, "plan_of", plan)]


def _remove_the_last_record() -> Sequence[Patch]:
    def rules(table: bytearray, *more: Any) -> Rules:
        for at in range(SLOT_BYTES - 8, len(table), SLOT_BYTES):
            offset = int.from_bytes(table[at : at + 8], "little")
            if offset:
                table[at : at + 8] = (offset + 1).to_bytes(8, "little")
        return Rules(table, *more)

    return [(cleaning_pass, "Rules", rules)]


def _renumber() -> Sequence[Patch]:
    append = GroupCopy._append

    def append_renumbered(
        self: GroupCopy, file: DiskFile, output: bytes, rows: bytes, *, is_changed: bool
    ) -> None:
        renumbered = bytearray(output)
        for header in whole_batches(renumbered):
            offset = self._next_offset if header.position == 0 else header.base_offset
            renumbered[header.position : header.position + 8] = offset.to_bytes(8, "big")
        append(self, file, bytes(renumbered), rows, is_changed=is_changed)

    return [(GroupCopy, "_append", append_renumbered)]


def _with_rules(**values: Any) -> Sequence[Patch]:
    return [(cleaning_pass, "Rules", lambda *given: Rules(*given)._replace(**values))]


def _expire_at_once() -> Sequence[Patch]:
    def rules(*given: Any) -> Rules:
        made = Rules(*given)
        return made._replace(horizon_ms=made.now_ms)

    return [(cleaning_pass, "Rules", rules)]


def _forget_epochs() -> Sequence[Patch]:
    def filter_batches(
        data: bytes, position: int, expected: int, upper: int, rules: Rules, previous_epoch: int
    ) -> Filtered:
        """Filter batch by batch, as if each had the leader epoch of the one before it."""
        output = rows = b""
        is_changed = False
        while True:
            following = whole_batches(memoryview(data)[position:])
            epoch = following[0].leader_epoch if following else previous_epoch
            end = position + following[0].end if following else len(data)
            found = compaction.filter_batches(data[:end], position, expected, upper, rules, epoch)
            output, rows = output + found.output, rows + found.rows
            is_changed = is_changed or found.is_changed
            is_last = found.status != compaction.ENDED or not following or found.position == position
            if is_last:
                return found._replace(output=output, rows=rows, is_changed=is_changed)
            position, expected, previous_epoch = found.position, found.expected, found.previous_epoch

    class Patched:
        def __getattr__(self, name: str) -> Any:
            return getattr(compaction, name)

    patched = Patched()
    patched.filter_batches = filter_batches  # type: ignore[attr-defined]
    return [(copying, "compaction", patched)]


def _keep_cleaned_offset() -> Sequence[Patch]:
    after = truncation._after_truncation

    def after_truncation(log: Log, end_offset: int, now_ms: int) -> None:
        cleaned_offset = log.cleaned_offset
        after(log, end_offset, now_ms)
        log.cleaned_offset = cleaned_offset

    return [(truncation, "_after_truncation", after_truncation)]


def _complete_half_of_swaps() -> Sequence[Patch]:
    def complete(loading: Any, base_offset: int) -> None:
        name = names.offset_file(base_offset, names.LOG)
        loading.disk.rename(loading.path(name + names.SWAP), loading.path(name))
        loading.swapped.add(base_offset)

    return [(recovery, "_complete_swap", complete)]


def _swap_without_fsync() -> Sequence[Patch]:
    finish = GroupCopy._finish

    class Unsynced:
        def __init__(self, file: Any) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return (lambda: None) if name == "fsync" else getattr(self._file, name)

    return [(GroupCopy, "_finish", lambda self, file: finish(self, Unsynced(file)))]


def _keep_pending_swaps() -> Sequence[Patch]:
    return [(Segments, "cancel_replacement", lambda self: setattr(self, "_to_replace", ()))]


def _count_an_unmapped_segment_as_covered() -> Sequence[Patch]:
    init = KeyMapping.__init__

    def mutant(self: KeyMapping, disk: Any, sources: Sequence[Any], *more: Any) -> None:
        init(self, disk, sources[:-1] or sources, *more)
        self.end_offset = sources[-1].next_offset

    return [(KeyMapping, "__init__", mutant)]


def _accept_records_without_keys() -> Sequence[Patch]:
    return [(preparation, "check_keys", lambda records, header, partition: None)]


def _end_segments_without_the_last_epoch() -> Sequence[Patch]:
    finish = GroupCopy._finish

    def mutant(self: GroupCopy, file: Any) -> None:
        self.previous_epoch = self._last_epoch
        finish(self, file)

    return [(GroupCopy, "_finish", mutant)]


def _go_on_after_a_truncation() -> Sequence[Patch]:
    def mutant(log: Log, segments: Sequence[Segment], truncations: int) -> bool:
        return is_current(log, segments, log.truncations)

    return [(cleaning_pass, "is_current", mutant), (replacement, "is_current", mutant)]


def _take_unflushed_for_durable() -> Sequence[Patch]:
    def plan(
        log: Log, committed_offset: int, now_ms: int, horizon_ms: int = NO_LIMIT_MS
    ) -> CleaningPlan | None:
        durable, log.recovery_point = log.recovery_point, log.log_end_offset
        try:
            return plan_of(log, committed_offset, now_ms, horizon_ms)
        finally:
            log.recovery_point = durable

    return [(cleaner, "plan_of", plan)]


def _let_the_last_record_expire() -> Sequence[Patch]:
    clean = CleaningPass._clean_group

    async def mutant(self: CleaningPass, group: Sequence[Segment], *more: Any) -> None:
        with mock.patch.object(cleaning_pass, "_NEVER_MS", self._around.date_ms()):
            await clean(self, group, *more)

    return [(CleaningPass, "_clean_group", mutant)]


def _forget_what_was_mapped() -> Sequence[Patch]:
    def mutant(disk: Disk, directory: str, offset: int) -> None: ...

    return [(cleaning_pass, "write_mapped_offset", mutant)]


def _cut_behind_compaction() -> Sequence[Patch]:
    def mutant(partition: Partition, end_offset: int) -> bool:
        return False

    return [(following, "_may_lack", mutant)]


def _always_choose_the_dirtiest() -> Sequence[Patch]:
    def mutant(self: CleaningTurns, plans: Iterable[CleaningPlan], now_s: float) -> CleaningPlan | None:
        return max(plans, key=lambda plan: (plan.is_due, plan.dirty_ratio), default=None)

    return [(CleaningTurns, "choose", mutant)]


def _serve_partitions_in_turn() -> Sequence[Patch]:
    return [(CleaningTurns, "end", lambda self, log, now_s, busy: self._served.clear())]


def _rest_as_long_each_time() -> Sequence[Patch]:
    return [(Rests, "failed", Rests.aborted)]


def _search_when_nothing_is_dirty() -> Sequence[Patch]:
    return [(Cleaner, "_kinds_in_turn", lambda self: (self._begin_pass, self._begin_search))]


def _look_at_all_logs_at_once() -> Sequence[Patch]:
    return [(cleaner, "_LOGS_PER_TURN", 1 << 30), (cleaner, "_TURN_S", 1e9)]


def _begin_what_was_planned() -> Sequence[Patch]:
    def mutant(self: Cleaner) -> Generator[None, None, bool]:
        plans = []
        for log in list(self._logs):
            plans += [plan for plan in (self._plan(log),) if plan is not None]
            yield
        chosen = self._turns.choose(plans, self._clock.seconds())
        if chosen is not None:
            self._begin(chosen, self._settings.current())
        return chosen is not None

    return [(Cleaner, "_begin_pass", mutant)]


def _compact_after_the_future() -> Sequence[Patch]:
    def mutant(log: Log, segment: Segment, latest_ms: int, now_ms: int) -> int:
        return latest_ms

    return [(cleaning_plan, "believed_ms", mutant)]


MUTATIONS = (
    Mutation(
        "unflushed-taken-for-durable",
        "a record is superseded by one that is committed, but not durable on this machine",
        _take_unflushed_for_durable,
    ),
    Mutation("tombstone-removed-at-once", "delete.retention.ms has no effect", _expire_at_once),
    Mutation(
        "deleted-key-alive-again",
        "a pass lets tombstones expire whose keys it has not looked up, so that earlier records stay alone",
        _count_an_unmapped_segment_as_covered,
    ),
    Mutation(
        "keyless-record-accepted",
        "a compacted topic takes records without keys",
        _accept_records_without_keys,
    ),
    Mutation("last-of-key-removed", "compaction removes the last record of a key", _remove_the_last_record),
    Mutation("compaction-renumbers", "compaction closes the gaps between offsets", _renumber),
)

RARE = (
    Mutation(
        "cut-behind-compaction",
        "a truncated log goes on although compaction has removed records because of those cut off",
        _cut_behind_compaction,
    ),
    Mutation(
        "mapped-offset-forgotten",
        "a restart forgets how far compaction has looked for later records of the keys",
        _forget_what_was_mapped,
    ),
    Mutation(
        "last-record-expires",
        "a tombstone at the end of the log is removed once it has expired",
        _let_the_last_record_expire,
    ),
    Mutation(
        "pass-over-truncated-log",
        "a pass goes on over a log that was truncated and written again meanwhile",
        _go_on_after_a_truncation,
    ),
    Mutation(
        "idle-tombstones-stay",
        "tombstones whose horizon has passed stay until something new is written",
        lambda: [
            (
                cleaner,
                "plan_of",
                lambda log, committed_offset, now_ms, horizon_ms=0: plan_of(log, committed_offset, now_ms),
            )
        ],
    ),
    Mutation(
        "compacted-beyond-high-watermark",
        "records that are not committed supersede committed ones",
        _beyond_the_high_watermark,
    ),
    Mutation(
        "horizon-before-pass",
        "a tombstone expires although no pass has covered it",
        lambda: _with_rules(map_end=2**62),
    ),
    Mutation(
        "producers-compacted-away",
        "the last batch of a producer disappears with its records",
        lambda: _with_rules(kept_headers=b""),
    ),
    Mutation(
        "epochs-compacted-away",
        "the first batch of a leader epoch disappears with its records",
        _forget_epochs,
    ),
    Mutation(
        "rewritten-counts-as-compacted",
        "records that are written after a truncation count as compacted",
        _keep_cleaned_offset,
    ),
    Mutation(
        "swap-half-completed", "recovery keeps the old segments beside the new one", _complete_half_of_swaps
    ),
    Mutation("swap-before-durable", "a segment replaces others before it is durable", _swap_without_fsync),
    Mutation(
        "swap-not-taken-back",
        "a truncation leaves a swap that undoes it",
        _keep_pending_swaps,
    ),
    Mutation(
        "segment-ended-without-epoch",
        "a compacted segment before the log start ends with a batch without a leader epoch",
        _end_segments_without_the_last_epoch,
    ),
    Mutation(
        "dirtiest-always-first",
        "a topic that is always dirty keeps the cleaner from all others",
        _always_choose_the_dirtiest,
    ),
    Mutation(
        "turns-by-partition",
        "a topic of many partitions gets many turns of the cleaner before another gets one",
        _serve_partitions_in_turn,
    ),
    Mutation(
        "vain-passes-repeated",
        "a pass that cannot succeed is tried again every quarter of a minute for ever",
        _rest_as_long_each_time,
    ),
    Mutation(
        "searches-wait-for-ever",
        "tombstones of an earlier process stay as long as any log is dirty",
        _search_when_nothing_is_dirty,
    ),
    Mutation(
        "logs-looked-at-at-once",
        "the cleaner looks at thousands of logs in one turn of the reactor, and every client waits",
        _look_at_all_logs_at_once,
    ),
    Mutation(
        "stale-plan-begun",
        "a pass begins by a plan that was made in an earlier turn, over a log that has failed since",
        _begin_what_was_planned,
    ),
    Mutation(
        "compacted-after-the-future",
        "one record from the far future keeps all that follow it from being compacted",
        _compact_after_the_future,
    ),
)
"""Bugs that a campaign rarely catches: a crash seldom hits a swap, a pass seldom ends early before a
tombstone."""
