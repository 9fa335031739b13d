"""The transaction coordinator: epochs, fencing, time-outs, what a new coordinator finishes, refusals."""

from __future__ import annotations

import pytest

from holdfast_log.coordinator.transactions.epochs import EPOCH_MAX, ProducerName
from holdfast_log.coordinator.transactions.listing import TransactionFilter
from holdfast_log.coordinator.transactions.records import decode_transaction, transaction_record
from holdfast_log.coordinator.transactions.states import TransactionState
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.transactions.world import A0, A1, B0, ID, TIMEOUT_MS, Coordinator

_S = TransactionState


def _at_epoch(world: Coordinator, epoch: int) -> ProducerName:
    """A producer in a late epoch."""
    producer = world.producer()
    found = world[ID]
    record = transaction_record(
        ID,
        type(found)(found.producer_id, epoch, TIMEOUT_MS, _S.EMPTY, frozenset(), world.now_ms),
        is_flexible=True,
    )
    world.log.append(record)
    world.take_over()
    return ProducerName(producer.producer_id, epoch)


# -- a transaction -------------------------------------------------------------------------------------------


def test_a_transaction_from_its_begin_to_its_end() -> None:
    world = Coordinator()
    producer = world.producer()
    assert producer == ProducerName(1_001, 0)
    assert world.add(producer, A0, B0).error is ErrorCode.NONE
    assert world.add(producer, A1).error is ErrorCode.NONE
    assert world[ID].partitions == {A0, A1, B0}
    assert not world.markers
    assert world.end(producer).error is ErrorCode.NONE
    (markers,) = world.markers
    assert markers.is_commit
    assert markers.partitions == {A0, A1, B0}
    assert (markers.producer_id, markers.producer_epoch) == producer
    world.mark(A0, B0)
    assert world[ID].state is _S.PREPARE_COMMIT
    assert world[ID].partitions == {A1}, "those that lack the marker"
    world.mark(A1)
    assert world[ID].state is _S.COMPLETE_COMMIT
    assert world[ID].partitions == frozenset()


def test_partitions_that_a_transaction_has_are_not_written_again() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0, A1)
    records = len(world.log)
    assert world.add(producer, A1).error is ErrorCode.NONE
    assert len(world.log) == records


def test_a_producer_begins_the_next_transaction_only_when_all_markers_are_written() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0)
    world.end(producer)
    assert world.add(producer, A1).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.mark()
    assert world.add(producer, A1).error is ErrorCode.NONE
    assert world[ID].partitions == {A1}


def test_an_aborted_transaction_is_not_committed_any_more() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0)
    assert world.end(producer, is_commit=False).error is ErrorCode.NONE
    for _ in range(2):
        assert world.end(producer).error is ErrorCode.INVALID_TXN_STATE
        world.mark()


def test_markers_of_an_earlier_transaction_do_not_complete_a_later_one() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0)
    world.end(producer, bumps=True)
    world.mark()
    first = world.markers[-1]
    later = ProducerName(producer.producer_id, producer.epoch + 1)
    world.add(later, A0, client_version=2)
    world.end(later, bumps=True)
    world.perform(world.shard.marked(first, (A0,), world.now_ms))
    assert world[ID].state is _S.PREPARE_COMMIT


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_new_coordinator_finishes_what_was_decided(is_commit: bool) -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0, B0)
    world.end(producer, is_commit=is_commit)
    world.mark(A0)
    world.take_over()
    (markers,) = world.markers
    assert markers.is_commit is is_commit
    assert markers.partitions == {A0, B0}, "markers twice do no harm"
    world.mark()
    assert world[ID].state is (_S.COMPLETE_COMMIT if is_commit else _S.COMPLETE_ABORT)


def test_a_new_coordinator_leaves_open_transactions_open() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0)
    world.take_over()
    assert not world.markers
    assert world.end(producer).error is ErrorCode.NONE


# -- fencing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bumps", [False, True])
def test_a_successor_aborts_what_its_predecessor_has_open_and_fences_it(bumps: bool) -> None:
    world = Coordinator()
    old = world.producer()
    world.add(old, A0, client_version=2 if bumps else 0)
    assert world.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = world.markers
    assert not markers.is_commit
    assert markers.producer_epoch == old.epoch + 1, "the marker fences the old producer in the partitions"
    assert world.end(old, bumps=bumps).error is ErrorCode.PRODUCER_FENCED
    assert world.end(old, is_commit=False, bumps=bumps).error is ErrorCode.PRODUCER_FENCED
    assert world.add(old, A1).error is ErrorCode.PRODUCER_FENCED
    world.mark()
    assert world.end(old, is_commit=False, bumps=bumps).error is ErrorCode.PRODUCER_FENCED
    new = world.producer()
    assert new == ProducerName(old.producer_id, old.epoch + 2)
    assert world.end(old, is_commit=False).error is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_transaction_has_timed_out_is_fenced() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0)
    world.tick(TIMEOUT_MS)
    assert world[ID].state is _S.PREPARE_ABORT
    assert world[ID].producer_epoch == producer.epoch + 1
    for _ in range(2):
        for is_commit in (True, False):
            assert world.end(producer, is_commit=is_commit).error is ErrorCode.PRODUCER_FENCED
        world.mark()


def test_a_producer_with_an_epoch_for_each_transaction_goes_on_after_a_time_out() -> None:
    """Its abort counts as a repetition of the one that its time-out began (KIP-890); what it wrote late is
    fenced by the markers."""
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0, client_version=2)
    world.tick(TIMEOUT_MS)
    assert world.markers[-1].producer_epoch == producer.epoch + 1
    world.take_over()
    assert world.add(producer, A1, client_version=2).error is ErrorCode.PRODUCER_FENCED
    assert world.end(producer, bumps=True).error is ErrorCode.INVALID_TXN_STATE
    abort = world.end(producer, bumps=True, is_commit=False)
    assert abort.error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.mark()
    assert world.end(producer, bumps=True).error is ErrorCode.INVALID_TXN_STATE
    answer = world.end(producer, bumps=True, is_commit=False)
    assert answer_of(answer) == (producer.producer_id, producer.epoch + 1)
    goes_on = ProducerName(*answer_of(answer))
    assert world.add(goes_on, A0, client_version=2).error is ErrorCode.NONE
    assert world.end(goes_on, bumps=True).error is ErrorCode.NONE


def test_a_producer_that_times_out_in_its_last_epoch_is_fenced() -> None:
    """Nobody may write with the epoch after it."""
    world = Coordinator()
    producer = _at_epoch(world, EPOCH_MAX - 1)
    world.add(producer, A0, client_version=2)
    world.tick(TIMEOUT_MS)
    assert world[ID].producer_epoch == EPOCH_MAX
    for _ in range(2):
        assert world.end(producer, bumps=True, is_commit=False).error is ErrorCode.PRODUCER_FENCED
        world.mark()
    assert world.producer() == ProducerName(world.ids, 0)


def test_a_transaction_is_aborted_when_its_time_is_over_and_not_before() -> None:
    world = Coordinator()
    producer = world.producer()
    world.now_ms += 5_000
    world.add(producer, A0)
    assert world.shard.next_deadline_ms() == world.now_ms + TIMEOUT_MS
    world.now_ms += 30_000
    world.add(producer, A1)
    world.tick(TIMEOUT_MS - 30_000 - 1)
    assert world[ID].state is _S.ONGOING
    world.tick(1)
    assert world[ID].state is _S.PREPARE_ABORT


def test_a_new_coordinator_knows_since_when_a_transaction_is_open() -> None:
    world = Coordinator()
    world.add(world.producer(), A0)
    world.now_ms += TIMEOUT_MS
    world.take_over()
    world.tick()
    assert world[ID].state is _S.PREPARE_ABORT


def test_other_producers_ids_are_refused() -> None:
    world = Coordinator()
    producer = world.producer()
    stranger = ProducerName(producer.producer_id + 1, producer.epoch)
    assert world.add(stranger).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.end(stranger).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.init(expected=stranger).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60 * 1_000 + 1])
def test_time_outs_that_the_broker_does_not_allow_are_refused(timeout_ms: int) -> None:
    world = Coordinator()
    assert world.init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not world.log


# -- epochs --------------------------------------------------------------------------------------------------


def test_a_producer_goes_on_after_an_error_with_the_next_epoch() -> None:
    world = Coordinator()
    producer = world.producer()
    answer = world.init(expected=producer)
    assert (answer.producer_id, answer.producer_epoch) == (producer.producer_id, producer.epoch + 1)
    again = world.init(expected=producer)
    assert again == answer, "a repeated request gets the same epoch"
    world.producer()
    assert world.init(expected=producer).error is ErrorCode.PRODUCER_FENCED
    assert world.init(expected=ProducerName(*answer_of(answer))).error is ErrorCode.PRODUCER_FENCED


def answer_of(answer: object) -> tuple[int, int]:
    return answer.producer_id, answer.producer_epoch  # type: ignore[attr-defined]


def test_an_id_whose_epochs_are_used_up_is_replaced() -> None:
    world = Coordinator()
    last = _at_epoch(world, EPOCH_MAX - 1)
    answer = world.init(expected=last)
    assert answer.error is ErrorCode.NONE
    assert answer.producer_id != last.producer_id
    assert answer.producer_epoch == 0
    assert world.init(expected=last) == answer, "the predecessor repeats its request"
    world.producer()
    assert world.init(expected=last).error is ErrorCode.PRODUCER_FENCED


def test_the_last_epoch_is_kept_for_fencing() -> None:
    world = Coordinator()
    last = _at_epoch(world, EPOCH_MAX - 1)
    world.add(last, A0)
    assert world.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.markers[-1].producer_epoch == EPOCH_MAX
    world.mark()
    new = world.producer()
    assert new.producer_id != last.producer_id
    assert new.epoch == 0


# -- transaction.version 2 -----------------------------------------------------------------------------------


def test_each_end_raises_the_epoch() -> None:
    world = Coordinator()
    producer = world.producer()
    for epoch in (1, 2, 3):
        world.add(producer, A0, client_version=2)
        answer = world.end(producer, bumps=True, is_commit=epoch != 2)
        assert answer_of(answer) == (producer.producer_id, epoch)
        assert world.markers[-1].producer_epoch == epoch, "late records of this transaction are fenced"
        assert world.add(producer, A1, client_version=2).error is ErrorCode.PRODUCER_FENCED
        assert world.end(producer, bumps=True, is_commit=epoch != 2).error is (
            ErrorCode.CONCURRENT_TRANSACTIONS
        )
        world.mark()
        assert world.end(producer, bumps=True, is_commit=epoch != 2) == answer, "repeated"
        wrong = world.end(producer, bumps=True, is_commit=epoch == 2)
        assert wrong.error is ErrorCode.INVALID_TXN_STATE
        producer = ProducerName(*answer_of(answer))


def test_leaders_add_one_partition_after_the_other() -> None:
    world = Coordinator()
    producer = world.producer()
    for partition in (A0, A1, B0):
        assert world.add(producer, partition, client_version=2).error is ErrorCode.NONE
    world.take_over()
    world.end(producer, bumps=True)
    assert world.markers[-1].partitions == {A0, A1, B0}


def test_a_repeated_end_is_known_to_a_new_coordinator() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0, client_version=2)
    answer = world.end(producer, bumps=True)
    world.take_over()
    assert world.end(producer, bumps=True).error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.mark()
    world.take_over()
    assert world.end(producer, bumps=True) == answer


def test_the_abort_of_a_transaction_that_wrote_nothing_raises_the_epoch() -> None:
    world = Coordinator()
    producer = world.producer()
    answer = world.end(producer, is_commit=False, bumps=True)
    assert answer_of(answer) == (producer.producer_id, producer.epoch + 1)
    assert world.markers[-1].partitions == frozenset()
    world.mark()
    assert world[ID].state is _S.COMPLETE_ABORT
    assert world.end(producer, bumps=True).error is ErrorCode.INVALID_TXN_STATE


def test_the_last_end_of_an_id_gives_a_new_one() -> None:
    world = Coordinator()
    producer = _at_epoch(world, EPOCH_MAX - 1)
    world.add(producer, A0, client_version=2)
    answer = world.end(producer, bumps=True)
    assert answer.producer_id != producer.producer_id
    assert answer.producer_epoch == 0
    markers = world.markers[-1]
    assert (markers.producer_id, markers.producer_epoch) == (producer.producer_id, EPOCH_MAX)
    world.take_over()
    assert world[ID].next_producer_id == answer.producer_id
    world.mark()
    assert (world[ID].producer_id, world[ID].producer_epoch) == answer_of(answer)
    assert world.end(producer, bumps=True) == answer, "repeated"
    assert world.add(ProducerName(*answer_of(answer)), A0).error is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [0, EPOCH_MAX - 1])
def test_a_producer_that_goes_on_while_markers_are_missing_asks_again(epoch: int) -> None:
    """It is the producer still: neither to add a partition nor to abort may fence it, also under a new id."""
    world = Coordinator()
    producer = world.producer() if epoch == 0 else _at_epoch(world, epoch)
    world.add(producer, A0, client_version=2)
    goes_on = ProducerName(*answer_of(world.end(producer, bumps=True)))
    for _ in range(2):
        for is_commit in (True, False):
            answer = world.end(goes_on, bumps=True, is_commit=is_commit)
            assert answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert world.add(goes_on, A1, client_version=2).error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert world.verify(goes_on, A1).error is ErrorCode.CONCURRENT_TRANSACTIONS
        world.take_over()
    world.mark()
    assert world.end(goes_on, bumps=True).error is ErrorCode.INVALID_TXN_STATE
    assert answer_of(world.end(goes_on, bumps=True, is_commit=False)) == (
        goes_on.producer_id,
        goes_on.epoch + 1,
    )


# -- questions -----------------------------------------------------------------------------------------------


def test_a_partition_that_is_not_in_the_transaction_aborts_it() -> None:
    world = Coordinator()
    producer = world.producer()
    assert world.verify(producer, A0).partitions == {A0: ErrorCode.TRANSACTION_ABORTABLE}
    world.add(producer, A0)
    answer = world.verify(producer, A0, A1)
    assert answer.error is ErrorCode.NONE
    assert answer.partitions == {A1: ErrorCode.TRANSACTION_ABORTABLE}
    late = ProducerName(producer.producer_id, producer.epoch - 1)
    assert world.verify(late, A0).error is ErrorCode.PRODUCER_FENCED
    world.end(producer)
    assert world.verify(producer, A0).error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.mark()
    assert world.verify(producer, A0).partitions == {A0: ErrorCode.TRANSACTION_ABORTABLE}


def test_transactions_are_listed_by_state_producer_and_duration() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0)
    world.producer("idle")
    world.now_ms += 10_000

    def listed(states: set[TransactionState] | None, ids: set[int], open_for_ms: int) -> list[str]:
        answer = world.perform(world.shard.list("request", world.now_ms))
        wanted = TransactionFilter(states, ids, open_for_ms)
        known = zip(answer.transactional_ids, answer.transactions, strict=True)
        return sorted(name for name, each in known if wanted.has(each, answer.now_ms))

    assert listed(None, set(), -1) == ["idle", ID]
    assert listed({_S.ONGOING}, set(), -1) == [ID]
    assert listed(set(), set(), -1) == []
    assert listed(None, {producer.producer_id}, -1) == [ID]
    assert listed({_S.ONGOING}, set(), 9_999) == [ID]
    assert listed({_S.ONGOING}, set(), 10_000) == []


# -- refusals, memory, expiry --------------------------------------------------------------------------------


def test_what_the_log_refuses_has_not_happened() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0)
    before = world[ID]
    world.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.end(producer).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.add(producer, A1).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.init().error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world[ID] == before
    assert not world.markers, "no marker without a durable decision"
    world.error = None
    assert world.end(producer).error is ErrorCode.NONE


def test_a_refused_completion_is_tried_again() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0)
    world.end(producer)
    world.error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.mark()
    assert world[ID].state is _S.PREPARE_COMMIT
    world.tick(10_000)
    assert world[ID].state is _S.PREPARE_COMMIT
    world.error = None
    world.tick(10_000)
    assert world[ID].state is _S.COMPLETE_COMMIT


def test_a_refused_time_out_is_tried_again_later_with_the_same_epoch() -> None:
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0)
    world.error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.tick(TIMEOUT_MS)
    due_ms = world.shard.next_deadline_ms()
    assert due_ms is not None
    assert due_ms > world.now_ms, "not at once: it would turn without end"
    world.error = None
    world.tick(10_000)
    assert world[ID].producer_epoch == producer.epoch + 1


def test_an_id_that_is_not_used_is_forgotten() -> None:
    world = Coordinator(id_expiration_ms=100_000)
    producer = world.producer()
    world.now_ms += 50_000
    world.add(producer, A0)
    world.end(producer)
    world.mark()
    world.tick(99_999)
    assert ID in world.shard.transactions
    world.tick(1)
    assert ID not in world.shard.transactions
    assert world.log[-1].value is None
    assert world.memory.bytes == 0
    assert world.add(producer, A0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    world.take_over()
    assert not world.shard.transactions


def test_the_memory_of_transactions_is_bounded() -> None:
    world = Coordinator(state_bytes_max=2_000)
    producer = world.producer()
    names = [f"t{number}" for number in range(10)]
    errors = [world.init(name).error for name in names]
    assert errors[0] is ErrorCode.NONE
    assert errors[-1] is ErrorCode.POLICY_VIOLATION
    assert world.add(producer, *(A0, A1, B0)).error is ErrorCode.POLICY_VIOLATION
    assert world.memory.bytes <= 2_000
    assert world.init(names[0]).error is ErrorCode.NONE, "an id that is known goes on"
    world.shard.close()
    assert world.memory.bytes == 0


def test_the_ids_of_one_source_leave_room_for_those_of_others() -> None:
    world = Coordinator(state_bytes_max=1 << 20, source_bytes_max=2_000)
    names = [f"t{number}" for number in range(10)]
    errors = [world.init(name, source="stranger").error for name in names]
    assert errors[0] is ErrorCode.NONE
    assert errors[-1] is ErrorCode.POLICY_VIOLATION
    assert world.memory.by_source["stranger"] <= 2_000
    honest = world.init(source="honest")
    assert honest.error is ErrorCode.NONE
    producer = ProducerName(honest.producer_id, honest.producer_epoch)
    assert world.add(producer, A0, A1).error is ErrorCode.NONE
    assert world.init(names[0], source="stranger").error is ErrorCode.NONE, "an id that is known goes on"
    assert world.memory.bytes == sum(world.memory.by_source.values())
    world.take_over()
    assert not world.memory.by_source, "the log does not say who has made an id known"
    assert world.init(names[-1], source="stranger").error is ErrorCode.NONE
    assert world.memory.by_source.keys() == {"stranger"}
    world.shard.close()
    assert (world.memory.bytes, world.memory.by_source) == (0, {})


def test_the_partitions_that_a_transaction_grows_by_count_to_its_source() -> None:
    world = Coordinator(source_bytes_max=1_000)
    asked = world.init(source="stranger")
    producer = ProducerName(asked.producer_id, asked.producer_epoch)
    assert world.add(producer, A0).error is ErrorCode.NONE
    many = [A0._replace(partition=index) for index in range(10)]
    assert world.add(producer, *many).error is ErrorCode.POLICY_VIOLATION
    assert world[ID].partitions == {A0}
    world.end(producer)
    world.mark()
    world.tick(world.settings.id_expiration_ms)
    assert (world.memory.bytes, world.memory.by_source) == (0, {})


def test_an_id_counts_to_the_source_that_has_asked_last() -> None:
    world = Coordinator()
    world.init(source="first")
    world.init(source="second")
    assert world.memory.by_source.keys() == {"second"}
    assert world.memory.bytes == world.memory.by_source["second"]


def test_a_transaction_has_so_many_partitions_at_most() -> None:
    world = Coordinator(partitions_max=2)
    producer = world.producer()
    assert world.add(producer, A0, A1).error is ErrorCode.NONE
    assert world.add(producer, A0).error is ErrorCode.NONE
    assert world.add(producer, B0).error is ErrorCode.POLICY_VIOLATION
    assert world.end(producer).error is ErrorCode.NONE
    world.mark()
    assert world.add(producer, B0).error is ErrorCode.NONE, "the next transaction has its own"


def test_a_transactional_id_that_no_record_can_hold_is_refused() -> None:
    world = Coordinator()
    assert world.init("x" * 32_768).error is ErrorCode.INVALID_REQUEST
    assert world.init("x" * 32_767).error is ErrorCode.NONE


@pytest.mark.parametrize(("version", "of_record"), [(0, 0), (1, 1), (2, 1)])
def test_the_version_of_records_follows_the_setting(version: int, of_record: int) -> None:
    world = Coordinator(version=version)
    world.add(world.producer(), A0)
    value = world.log[-1].value
    assert value is not None
    assert value[:2] == of_record.to_bytes(2, "big")
    assert decode_transaction(value).partitions == {A0}
