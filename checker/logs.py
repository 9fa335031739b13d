"""Judges that each partition is one log: appended in order, read as written, with all that was acknowledged.

1. *Lost or misplaced.* The values of an acknowledged append are in the log, from the acknowledged offset on.
2. *Doubled or foreign.* No value is in the log twice, and none that no client wrote.
3. *Not refused.* The values of an append that a broker refused for good are not in the log.
4. *Stale.* A conditional append is in the log at the offset that it expected, or not at all.
5. *Torn.* The values of one conditional append are in the log one after the other, or not at all.
6. *Out of order.* The log's end never falls in real time: an append that was asked after another was
   answered is behind it, and a refusal names no end that is before an acknowledged append.
7. *Misread.* Each reader saw a part of the log, in order and without a gap, and nothing before a client asked
   to append it.
8. *Fenced.* Records of exclusive producers are in the order of their epochs, and none is before its own
   epoch's fence, or at or behind the fence of a later epoch. The same holds for the incarnations of owners.
9. *Within a grant.* No record of a client that is not the owner is between the first and the last record of
   one grant: if others could write, the grant had ended.
10. *Behind a refused one.* Of conditional appends that were sent one after the other on one connection,
   without waiting for answers, none is in the log behind one that was refused.

Attempts of one append (`AppendCall.append_id`) count as one: its values are in the log at most once, where
one of the attempts expected them, and a refusal of one says nothing about the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import inf

from holdfast_log.checker.calls import (
    NO_APPEND_ID,
    NO_GRANT,
    NO_LINE,
    NO_OFFSET,
    AppendCall,
    CallHistory,
    Outcome,
    OwnershipCall,
    ReadCall,
    StoredRecords,
)
from holdfast_log.checker.order import Sighting, falls


def log_violations(history: CallHistory) -> Iterator[str]:
    """Yield each violation of the rules above, in the partitions whose stored records the history has."""
    for log in history.stored:
        place = log.topic, log.partition
        appends = [call for call in history.appends if (call.topic, call.partition) == place]
        reads = [call for call in history.reads if (call.topic, call.partition) == place]
        grants = [call for call in history.ownership if call.resource == f"{place[0]}-{place[1]}"]
        yield from _Judge(log, appends).violations(reads, grants)


class _Judge:
    """One partition's log and the appends to it."""

    def __init__(self, log: StoredRecords, appends: Sequence[AppendCall]) -> None:
        self._place = f"{log.topic}-{log.partition}"
        self._log = log
        self._appends = appends
        self._value_at = dict(log.records)
        self._offset_of = {value: offset for offset, value in reversed(log.records)}
        latest_first = sorted(appends, key=lambda call: call.asked_s, reverse=True)
        self._append_of = {value: call for call in latest_first for value in call.values}
        self._expected_by_id: dict[str, set[int]] = defaultdict(set)
        for call in appends:
            self._expected_by_id[call.append_id].add(call.expected_offset)

    def violations(self, reads: Sequence[ReadCall], grants: Sequence[OwnershipCall]) -> Iterator[str]:
        yield from self._strange_records()
        for call in self._appends:
            yield from self._about(call)
        yield from self._behind_refused_ones()
        yield from self._out_of_order()
        for read in reads:
            yield from self._misread(read)
        yield from self._unfenced(grants)
        yield from self._within_grants()

    def _strange_records(self) -> Iterator[str]:
        for value, count in Counter(value for _, value in self._log.records).items():
            if count > 1:
                yield f"doubled: {value} is in {self._place} {count} times"
            if value not in self._append_of:
                yield f"foreign: {value} is in {self._place}, and no client wrote it"

    def _about(self, call: AppendCall) -> Iterator[str]:
        found = [self._offset_of.get(value) for value in call.values]
        if call.outcome is Outcome.DONE:
            for index, value in enumerate(call.values):
                if self._value_at.get(call.offset + index) != value:
                    where = "in no place" if found[index] is None else f"at {found[index]}"
                    yield f"lost or misplaced: {call}, at {call.offset}; the log has {value} {where}"
                    break
            if not self._is_expected(call, call.offset):
                yield f"stale: {call}, at {call.offset}, but it expected {call.expected_offset}"
            return
        if found == [None] * len(found):
            return
        if call.outcome is Outcome.REFUSED:
            if call.append_id == NO_APPEND_ID:
                yield f"not refused: {call}, but the log has it at {found}"
        elif found[0] is None or found != list(range(found[0], found[0] + len(found))):
            yield f"torn: {call}, but the log has its values at {found}"
        elif not self._is_expected(call, found[0]):
            yield f"stale: {call}, at {found[0]}, but it expected {call.expected_offset}"

    def _is_expected(self, call: AppendCall, offset: int) -> bool:
        """Whether the append, or another attempt of it, may have been carried out at an offset."""
        if call.append_id == NO_APPEND_ID:
            return call.expected_offset in (NO_OFFSET, offset)
        return bool(self._expected_by_id[call.append_id] & {NO_OFFSET, offset})

    def _behind_refused_ones(self) -> Iterator[str]:
        lines: dict[str, list[AppendCall]] = defaultdict(list)
        for call in self._appends:
            if call.line != NO_LINE:
                lines[call.line].append(call)
        for line in lines.values():
            refused: AppendCall | None = None
            for call in sorted(line, key=lambda call: call.in_line):
                if refused is not None and call.values[0] in self._offset_of:
                    yield f"behind a refused one: {call}, but before it on its connection: {refused}"
                if call.outcome is Outcome.REFUSED:
                    refused = refused or call

    def _out_of_order(self) -> Iterator[str]:
        sightings = []
        for call in self._appends:
            if call.append_id != NO_APPEND_ID:
                continue  # Another attempt of it may have been carried out, at another time.
            end = start = self._offset_of.get(call.values[0], NO_OFFSET)
            answered_s = call.answered_s
            if call.outcome is Outcome.DONE:
                start, end = call.offset, call.offset + len(call.values)
            elif call.outcome is Outcome.REFUSED:
                start = end = call.next_offset
            else:
                answered_s = inf  # Nobody knows when it was carried out, if at all.
            if start != NO_OFFSET:
                sightings.append(Sighting(call.asked_s, answered_s, (start, 0), (end, 0), call))
        for earlier, later in falls(sightings):
            yield (
                f"out of order: {later.call}, where the log ended at {later.seen[0]}; "
                f"but before: {earlier.call}, after which it ended at {earlier.left[0]}"
            )

    def _misread(self, read: ReadCall) -> Iterator[str]:
        following: int | None = None
        for offset, value in read.records:
            if following not in (None, offset):
                yield f"misread: {read.client} got offset {offset} of {self._place} instead of {following}"
                return
            if self._value_at.get(offset) != value:
                stored = self._value_at.get(offset, "nothing")
                yield f"misread: {read.client} got {value} at {offset} of {self._place}, which has {stored}"
                return
            writer = self._append_of.get(value)
            if writer is not None and writer.asked_s > read.answered_s:
                yield f"misread: {read.client} got {value} at {read.answered_s:.3f} s, before: {writer}"
                return
            following = offset + 1

    def _unfenced(self, grants: Sequence[OwnershipCall]) -> Iterator[str]:
        fences = {call.grant: call.fence_offset for call in grants if call.fence_offset != NO_OFFSET}
        latest = NO_GRANT
        for offset, value in self._log.records:
            writer = self._append_of.get(value)
            if writer is None or writer.grant == NO_GRANT:
                continue
            if writer.grant < latest:
                yield f"fenced: {self._place} has {value} of epoch {writer.grant} behind epoch {latest}"
                return
            latest = writer.grant
            for epoch, fence in fences.items():
                if (epoch > latest and offset >= fence) or (epoch == latest and offset < fence):
                    yield (
                        f"fenced: {self._place} has {value} of epoch {latest} at {offset}, "
                        f"and the fence of epoch {epoch} is {fence}"
                    )
                    return

    def _within_grants(self) -> Iterator[str]:
        stranger: tuple[int, AppendCall] | None = None
        begun: dict[int, int] = {}
        for offset, value in self._log.records:
            writer = self._append_of.get(value)
            if writer is None:
                continue
            if writer.grant == NO_GRANT:
                stranger = offset, writer
                continue
            first = begun.setdefault(writer.grant, offset)
            if stranger is not None and stranger[0] > first:
                yield (
                    f"within a grant: {stranger[1]}, at {stranger[0]}, but grant {writer.grant} has records "
                    f"at {first} and {offset}"
                )
                return
