"""Each rule about transactions in a partition, taken away: a test has to notice."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.cleaning.cleaning_pass import CleaningPass
from holdfast_log.broker.cleaning.transactions import PassTransactions
from holdfast_log.broker.handlers import end_txn, produce
from holdfast_log.broker.handlers.end_txn import EndTxnHandler
from holdfast_log.broker.log import aborted_search, producer_state, recovery
from holdfast_log.broker.log.aborted_index import AbortedIndex
from holdfast_log.broker.log.least_offsets import LeastOffsets
from holdfast_log.broker.log.producer_entry import NO_MARKER
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.transactions import Transactions
from holdfast_log.broker.replication import reads, verifying
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.verifying import Verifying
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.broker.cleaning import test_transactions as of_cleaner
from tests.broker.log import test_transactions as of_log
from tests.broker.replication import test_transactions as of_leader
from tests.broker.transactions import test_end_txn as of_end
from tests.broker.world import World
from tests.missed import assert_missed
from tests.models.logs import sim_disk

Check = Callable[[Path], None]


def walk(_: Path) -> None:
    """Random steps of the machine that compares a log with a model."""
    for seed in range(12):
        walk_once(random.Random(seed), of_log.TransactionMachine())


def walk_once(random_: random.Random, machine: of_log.TransactionMachine) -> None:
    machine.create(random_.choice([100, 400]))
    steps: list[Callable[[], None]] = [
        machine.flush,
        machine.roll,
        lambda: machine.truncate(random_.randrange(8)),
        lambda: machine.restart(is_clean=random_.random() < 0.5),
        *2 * [lambda: machine.commit(random_.random())],
        *4 * [lambda: machine.write(random_.randrange(3), 2)],
        *4 * [lambda: machine.end(random_.randrange(3), commits=random_.random() < 0.3)],
    ]
    for _ in range(40):
        random_.choice(steps)()
        machine.the_same_is_unstable()
        machine.the_same_is_aborted()
        machine.readers_are_told_of_what_they_read()


def asked(path: Path) -> None:
    world = World(path)
    world.assign("t")
    world.verifying.verifier = coordinator = of_leader.Coordinator()
    of_leader.TestVerification().test_a_marker_that_comes_in_between_ends_what_was_confirmed(
        world, coordinator
    )


def adding(test: str) -> Check:
    """A test of `TestAddition`."""

    def check(path: Path) -> None:
        world = World(path)
        world.assign("t")
        world.verifying.verifier = coordinator = of_leader.Coordinator()
        getattr(of_leader.TestAddition(), test)(world, coordinator)

    return check


added = adding("test_the_next_epoch_begins_another_transaction")
given_up = adding("test_what_cannot_be_added_for_long_is_sent_again")


def fenced(path: Path) -> None:
    world = World(path)
    world.assign("t")
    world.verifying.verifier = coordinator = of_leader.Coordinator()
    of_leader.TestVerification().test_what_the_coordinator_does_not_confirm_is_refused(
        world, coordinator, ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH
    )


def in_world(test: Callable[[World], None]) -> Check:
    return lambda path: test(World(path))


def on_disk(test: Callable[[Any], None]) -> Check:
    return lambda _: test(sim_disk())


def ending(test: Callable[[of_end.Coordinator], None]) -> Check:
    return lambda path: test(of_end.Coordinator(path))


def of(test: Callable[[], None]) -> Check:
    return lambda _: test()


_end, _first_unstable = Transactions.end, Transactions.first_unstable
_marker = PassTransactions.end


def learn_all(self: CleaningPass, transactions: PassTransactions) -> None:
    end_offset = self._plan.segments[-1].next_offset
    transactions.learn(*aborted_search.aborted_between(self._log, transactions.known_to, end_offset))


_find = AbortedIndex.find
_note_markers, _later = Verifying.note_markers, Verifying.later


def end_at_once(self: Transactions, first_offset: int, marker_offset: int) -> int:
    stable = _end(self, first_offset, marker_offset)
    del self.unstable[first_offset]
    return stable


async def check_nothing(self: EndTxnHandler, request: Any) -> None:
    pass


def noted_once(self: Verifying, producer_id: int, appends: Any) -> None:
    if all(append.verified_at is None for append in appends):
        _note_markers(self, producer_id, appends)


def later_without_end(self: Verifying, question: Any) -> Any:
    return _later(self, replace(question, until_ms=2**62))


def note_as_it_is(appends: Any, verdicts: Any) -> None:
    for append in appends:
        append.verified_at = None
        append.unverified = BrokerError(verdicts[append.topic_partition])


MUTATIONS: dict[str, tuple[object, str, object, Check]] = {
    "a marker settles before it is committed": (Transactions, "end", end_at_once, walk),
    "a marker at the high watermark counts as committed": (
        Transactions, "first_unstable", lambda self, mark: _first_unstable(self, mark + 1), walk,
    ),
    "snapshots forget what has ended and is not committed": (Transactions, "encode", lambda self: b"", walk),
    "a truncation leaves the index": (AbortedIndex, "truncate_to", lambda self, offset: None, walk),
    "recovery trusts the index": (
        recovery, "rebuild_aborted_indexes", lambda *arguments: None,
        of(of_log.test_recovery_rebuilds_an_index_that_was_lost_or_is_behind),
    ),
    "readers are told of no aborted transactions": (
        of_log, "aborted_between", lambda log, first, end, *ends_max: ([], end), walk,
    ),
    "one read names all aborted transactions": (
        AbortedIndex, "find", lambda self, first, end, ends_max=0: _find(self, first, end), walk,
    ),
    "a look-up reads all that was aborted during a long transaction": (
        LeastOffsets, "passed", lambda self, number, end_offset: number,
        of(of_log.test_behind_a_long_transaction_a_look_up_costs_what_it_finds),
    ),
    "a response names aborted transactions without a limit": (
        reads, "_ABORTED_BYTES", 0,
        in_world(of_leader.test_a_response_names_a_limited_number_of_aborted_transactions),
    ),
    "a full table forgets open transactions": (
        ProducerStates, "is_in_transaction", lambda self, producer_id: False,
        of(of_log.test_a_producer_with_an_open_transaction_is_never_forgotten),
    ),
    "no marker is fenced": (
        ProducerStates, "check_marker", lambda self, header, marker: None,
        in_world(of_leader.test_markers_are_fenced_by_the_epochs_of_producer_and_coordinator),
    ),
    "a producer writes outside of its transaction": (
        producer_state, "check_inside", lambda header, offset: None,
        in_world(of_leader.test_a_producer_writes_nothing_outside_of_its_open_transaction),
    ),
    "a marker leaves what was confirmed before it": (
        ProducerStates, "last_marker_of", lambda self, producer_id: NO_MARKER, asked,
    ),
    "a new epoch goes on with the transaction of the last one": (
        ProducerStates, "continues_transaction",
        lambda self, header: self.is_in_transaction(header.producer_id), added,
    ),
    "a leader that asks again keeps the marker that it had seen": (
        Verifying, "note_markers", noted_once, added,
    ),
    "a leader asks a coordinator once": (Verifying, "later", lambda self, question: None, added),
    "a leader asks without an end": (Verifying, "later", later_without_end, given_up),
    "Produce of version 12 adds nothing": (
        produce, "_FIRST_VERSION_THAT_ADDS", 13,
        adding("test_a_batch_that_begins_a_transaction_adds_its_partition"),
    ),
    "a coordinator's word for a fenced producer is passed on": (
        verifying, "_note", note_as_it_is, fenced,
    ),
    "an owner commits after its grant has ended": (
        EndTxnHandler, "_check_owners", check_nothing,
        ending(of_end.test_an_owner_that_has_a_successor_commits_nothing_and_aborts),
    ),
    "a commit that is decided is refused when its owner is replaced": (
        end_txn, "_COMMITTED", (), ending(of_end.test_a_commit_that_is_decided_stays_when_the_grant_ends),
    ),
    "readers of committed records stop nowhere": (
        Partition, "last_stable_offset", property(lambda self: self.high_watermark),
        in_world(of_leader.test_readers_of_committed_records_stop_at_an_open_transaction),
    ),
    "compaction keeps aborted records": (
        PassTransactions, "is_aborted", lambda self, header: False,
        on_disk(of_cleaner.test_records_of_aborted_transactions_go_and_replace_no_others),
    ),
    "compaction looks up all aborted transactions at once": (
        CleaningPass, "_learn", learn_all,
        on_disk(of_cleaner.test_a_pass_knows_a_bounded_number_of_aborted_transactions_at_a_time),
    ),
    "compaction goes on where it does not know the aborted transactions": (
        PassTransactions, "covers", lambda self, header: True,
        on_disk(of_cleaner.test_a_pass_knows_a_bounded_number_of_aborted_transactions_at_a_time),
    ),
    "compaction drops a marker before its records": (
        PassTransactions, "end", lambda self, batch, header: (True, _marker(self, batch, header)[1]),
        on_disk(of_cleaner.test_a_marker_stays_until_its_delete_horizon_once_its_transaction_is_gone),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_taken_away_is_missed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *rule, check = MUTATIONS[name]
    directories = iter((tmp_path / "sound", tmp_path / "mutated"))
    caught = (AssertionError, ValueError, KeyError)
    assert_missed(monkeypatch, caught, *rule, lambda: check(next(directories)))


def test_the_search_is_the_one_that_readers_use() -> None:
    assert of_log.aborted_between is aborted_search.aborted_between
