"""The judges accept every history of a correct cluster, and find one mutation in it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_log.checker.calls import (
    ABSENT,
    Action,
    AppendCall,
    CallHistory,
    KeyCall,
    ListRead,
    Outcome,
    OwnershipCall,
    ReadCall,
    StoredList,
    StoredRecords,
    TransactionCall,
    from_lines,
    to_line,
)
from holdfast_log.checker.verdict import judge

LOG = ("log", 0)
REGISTER = ("register", 0)
NAME = "group/leader"
LIST = "list"
CLIENTS = ("anna", "ben", "carla")


@dataclass(slots=True)
class CorrectCluster:
    """A cluster of one resource, log, register and list, in which each call takes effect at one moment.

    The moments rise; a call is asked up to `spread` before its moment and answered up to `spread` after, so
    calls of different clients overlap.
    """

    rng: random.Random
    spread: float
    moment: float = 0.0
    grant: int = 0
    owner: str = CLIENTS[0]
    log: list[str] = field(default_factory=list)
    register: list[str] = field(default_factory=list)
    elements: list[str] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    history: CallHistory = field(default_factory=CallHistory)

    def times(self) -> tuple[float, float]:
        self.moment += 1.0
        early, late = (self.rng.uniform(0.0, self.spread) for _ in range(2))
        return self.moment - early, self.moment + late

    def grant_to(self, client: str) -> None:
        self.grant, self.owner = self.grant + 1, client
        self.confirm(Action.CLAIM, is_taking=True)

    def confirm(self, action: Action, *, is_taking: bool = False) -> None:
        call = OwnershipCall(
            self.owner, NAME, action, *self.times(), Outcome.DONE, self.grant, 3.0, is_taking=is_taking
        )
        self.history.add(call)

    def append(self, client: str, outcome: Outcome) -> None:
        values = tuple(
            f"{client}:{len(self.history.appends)}:{index}" for index in range(self.rng.randint(1, 3))
        )
        offset, times = len(self.log), self.times()
        call = AppendCall(client, *LOG, values, *times, outcome, offset, offset)
        if outcome is Outcome.DONE or (outcome is Outcome.UNKNOWN and self.rng.random() < 0.5):
            self.log += values
        if outcome is not Outcome.DONE:
            next_offset = offset if outcome is Outcome.REFUSED else -1
            call = replace(call, offset=-1, next_offset=next_offset)
            if outcome is Outcome.REFUSED:
                call = replace(call, expected_offset=offset + 1)
        self.history.add(call)

    def read(self, client: str) -> None:
        end = len(self.log)
        start = self.rng.randint(0, end)
        self.history.add(ReadCall(client, *LOG, *self.times(), tuple(enumerate(self.log))[start:end]))

    def use_key(self, client: str, outcome: Outcome, *, is_put: bool) -> None:
        key = self.rng.choice("xy")
        before, times = self.versions.get(key, ABSENT), self.times()
        value = f"{'put' if is_put else 'get'} {key} {len(self.history.keys)}"
        offset = len(self.register)
        if outcome is Outcome.DONE or self.rng.random() < 0.5:
            self.register.append(value)
            if is_put:
                self.versions[key] = offset
        self.history.add(
            AppendCall(
                client,
                *REGISTER,
                (value,),
                *times,
                outcome,
                offset if outcome is Outcome.DONE else -1,
                offset,
            )
        )
        version = before
        if is_put:
            version = offset if outcome is Outcome.DONE else ABSENT
        self.history.add(
            KeyCall(
                client, *REGISTER, key, is_put, *times, outcome, version, before if is_put else ABSENT, value
            )
        )

    def use_list(self, client: str) -> None:
        """Append to a list in a transaction that has read it."""
        seen = tuple(self.elements)
        self.elements.append(f"element {len(seen)}")
        read = (ListRead(LIST, len(seen), seen),) if seen else ()
        appended = ((LIST, self.elements[-1]),)
        self.history.add(TransactionCall(client, *self.times(), Outcome.DONE, read, appended))

    def end(self) -> CallHistory:
        self.history.add(StoredList(LIST, tuple(self.elements)))
        self.history.add(StoredRecords(*LOG, tuple(enumerate(self.log))))
        self.history.add(StoredRecords(*REGISTER, tuple(enumerate(self.register))))
        return self.history


def correct_history(seed: int, length: int = 60) -> CallHistory:
    """A random history of a correct cluster, with at least one call of each kind that succeeded."""
    rng = random.Random(seed)
    cluster = CorrectCluster(rng, spread=rng.choice((0.4, 3.0, 20.0)))
    cluster.grant_to(CLIENTS[0])
    cluster.append(CLIENTS[0], Outcome.DONE)
    cluster.use_key(CLIENTS[0], Outcome.DONE, is_put=True)
    cluster.read(CLIENTS[0])
    cluster.use_list(CLIENTS[0])
    cluster.use_list(CLIENTS[0])
    for _ in range(length):
        client = rng.choice(CLIENTS)
        match rng.randrange(7):
            case 0:
                cluster.grant_to(client)
            case 1:
                cluster.confirm(rng.choice((Action.RENEW, Action.RESUME, Action.WRITE)))
            case 2 | 3:
                cluster.append(
                    client, rng.choice((Outcome.DONE, Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN))
                )
            case 4:
                cluster.read(client)
            case 5:
                cluster.use_list(client)
            case _:
                outcome = rng.choice((Outcome.DONE, Outcome.DONE, Outcome.UNKNOWN))
                cluster.use_key(client, outcome, is_put=rng.random() < 0.5)
    return cluster.end()


def rules(history: CallHistory) -> set[str]:
    """The names of the violated rules."""
    return {text.partition(":")[0] for text in judge(history).violations}


SEEDS = st.integers(min_value=0, max_value=2**32)


@given(SEEDS)
def test_a_history_of_a_correct_cluster_is_accepted(seed: int) -> None:
    verdict = judge(correct_history(seed))

    assert verdict.holds, (verdict.violations, verdict.missing)


@given(SEEDS)
@settings(max_examples=20)
def test_a_history_is_the_same_after_it_was_written_and_read(seed: int) -> None:
    history = correct_history(seed)
    kinds = (
        *(history.ownership, history.appends, history.reads, history.keys, history.stored),
        *(history.transactions, history.lists),
    )

    lines = [to_line(call) for calls in kinds for call in calls]

    assert from_lines(lines) == history


@given(SEEDS)
def test_an_acknowledged_append_dropped_from_the_log_is_found(seed: int) -> None:
    history = correct_history(seed)
    dropped = random.Random(seed).choice([call for call in history.appends if call.outcome is Outcome.DONE])
    for index, log in enumerate(history.stored):
        if (log.topic, log.partition) == (dropped.topic, dropped.partition):
            kept = [value for _, value in log.records if value not in dropped.values]
            history.stored[index] = replace(log, records=tuple(enumerate(kept)))

    assert "lost or misplaced" in rules(history)


@given(SEEDS)
def test_two_records_that_changed_places_are_found(seed: int) -> None:
    history = correct_history(seed)
    done = [
        call
        for call in history.appends
        if call.outcome is Outcome.DONE and (call.topic, call.partition) == LOG
    ]
    first, second = (random.Random(seed).choice(done).values[0] for _ in range(2))
    for index, log in enumerate(history.stored):
        other = {first: second, second: first}
        swapped = tuple((offset, other.get(value, value)) for offset, value in log.records)
        history.stored[index] = replace(log, records=swapped)

    assert ("lost or misplaced" in rules(history)) == (first != second)


@given(SEEDS)
def test_a_second_holder_that_is_inserted_is_found(seed: int) -> None:
    history = correct_history(seed)
    last = max(history.ownership, key=lambda call: call.answered_s)
    former = replace(
        history.ownership[0],
        client="zoe",
        action=Action.RENEW,
        asked_s=last.answered_s + 0.1,
        answered_s=last.answered_s + 0.2,
        grant=0,
    )
    history.add(former)

    assert rules(history) == {"two holders"}


@given(SEEDS)
def test_a_get_that_returns_to_an_earlier_version_is_found(seed: int) -> None:
    history = correct_history(seed)
    puts = [call for call in history.keys if call.is_put and call.outcome is Outcome.DONE]
    put = random.Random(seed).choice(puts)
    late_s = put.answered_s + 0.1
    stale = replace(
        put,
        client="zoe",
        is_put=False,
        asked_s=late_s,
        answered_s=late_s + 0.1,
        version=put.expected_version,
        expected_version=ABSENT,
        value="",
    )
    history.add(stale)

    assert rules(history) == {"out of order"}
