"""PIP-68, sentence by sentence: what exclusive producers do to the ownership table."""

from __future__ import annotations

import pytest

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import LossReason
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.broker.ownership.machine import P0, P1, SESSION_MS, Machine

SHARED = ProducerAccessMode.SHARED
EXCLUSIVE = ProducerAccessMode.EXCLUSIVE
WAIT = ProducerAccessMode.WAIT_FOR_EXCLUSIVE
FENCING = ProducerAccessMode.EXCLUSIVE_WITH_FENCING


@pytest.fixture
def machine() -> Machine:
    return Machine()


def owner(machine: Machine) -> str | None:
    return machine.owner_of(P0, "")


def test_several_producers_can_share_a_partition(machine: Machine) -> None:
    """ "By default multiple producers can publish on a topic"."""
    outcomes = [machine.client(str(number)).access_to(P0, SHARED) for number in range(3)]
    assert [outcome.error_code for outcome in outcomes] == [0, 0, 0]
    assert [outcome.generation for outcome in outcomes] == [-1, -1, -1]


@pytest.mark.parametrize("there", [SHARED, EXCLUSIVE])
def test_exclusive_fails_at_once_if_there_is_a_producer(machine: Machine, there: ProducerAccessMode) -> None:
    """ "Require exclusive access for producer. Fail immediately if there's already a producer connected"."""
    machine.client("first").access_to(P0, there)
    refused = machine.client("second").access_to(P0, EXCLUSIVE)
    assert refused.error_code == ErrorCode.RESOURCE_OWNED


def test_other_producers_fail_or_wait_while_there_is_an_exclusive_one(machine: Machine) -> None:
    """ "Other producers trying to produce on this topic, will either receive an error immediately (if using
    Exclusive or Shared access mode) or will have to wait until the current exclusive producer session is
    closed"."""
    first = machine.client("first")
    first.access_to(P0, EXCLUSIVE)
    assert machine.client("a").access_to(P0, EXCLUSIVE).error_code == ErrorCode.RESOURCE_OWNED
    assert machine.client("b").access_to(P0, SHARED).error_code == ErrorCode.RESOURCE_OWNED
    waiter = machine.client("c")
    assert waiter.access_to(P0, WAIT, wait_ms=-1).error_code == ErrorCode.CLAIM_QUEUED

    first.release(P0)

    assert owner(machine) == "c"
    assert waiter.renew(P0).generation == 2


def test_waiting_for_exclusive_succeeds_at_once_without_other_producers(machine: Machine) -> None:
    """ "Same as before but, if there are producers connected, suspend the producer creation until we can be
    promoted to be exclusive producer"."""
    assert machine.client("first").access_to(P0, WAIT, wait_ms=-1).generation == 1


def test_waiting_producers_are_promoted_in_their_order(machine: Machine) -> None:
    """ "this producer will be evicted and a new producer will be picked to be the next exclusive
    producer"."""
    first, *rest = [machine.client(str(number)) for number in range(4)]
    first.access_to(P0, EXCLUSIVE)
    positions = [client.access_to(P0, WAIT, wait_ms=-1).position for client in rest]
    assert positions == [1, 2, 3]
    owners = []
    for client in [first, *rest]:
        owners.append(owner(machine))
        client.close()
    assert owners == ["0", "1", "2", "3"]
    assert owner(machine) is None


def test_exclusive_and_waiting_producers_keep_new_shared_ones_out(machine: Machine) -> None:
    """Waiters and exclusive producers keep out new sharers: otherwise a waiter might wait for ever."""
    sharer, waiter = machine.client("sharer"), machine.client("waiter")
    sharer.access_to(P0, SHARED)
    waiter.access_to(P0, WAIT, wait_ms=-1)
    assert machine.client("late").access_to(P0, SHARED).error_code == ErrorCode.RESOURCE_OWNED
    assert machine.client("later").access_to(P0, EXCLUSIVE).error_code == ErrorCode.RESOURCE_OWNED
    assert sharer.renew(P0).error_code == 0


def test_the_epoch_rises_with_each_new_exclusive_producer(machine: Machine) -> None:
    """ "The epoch is a counter that is incremented each time a new exclusive producer takes over the
    topic"."""
    epochs = []
    for number in range(4):
        client = machine.client(str(number))
        epochs.append(client.access_to(P0, EXCLUSIVE).generation)
        client.close()
    assert epochs == [1, 2, 3, 4]


def test_the_producer_epoch_is_stored_in_the_partitions_record(machine: Machine) -> None:
    """ "The epoch is stored in metadata … and it has to be updated each time a new producer attempts to take
    over"."""
    machine.client("first").access_to(P0, EXCLUSIVE)
    assert machine.record(P0).histories[""][-1].generation == 1
    machine.client("second").access_to(P0, FENCING)
    assert machine.record(P0).histories[""][-1].generation == 2


def test_an_old_producer_that_returns_first_keeps_its_epoch(machine: Machine) -> None:
    """ "The old producer is the first in re-attempting to produce on the topic. In this case, the topic epoch
    will still match the producer epoch and the topic epoch doesn't need to get incremented"."""
    first = machine.client("first")
    first.access_to(P0, EXCLUSIVE)
    first.close()
    assert owner(machine) is None
    first.reconnect()

    again = first.access_to(P0, EXCLUSIVE, epoch=1)

    assert (again.error_code, again.generation) == (0, 1)
    assert owner(machine) == "first"


def test_a_new_producer_that_arrives_first_raises_the_epoch(machine: Machine) -> None:
    """ "A new producer is the first in reconnecting and it will force the increment on the topic epoch"."""
    first, second = machine.client("first"), machine.client("second")
    first.access_to(P0, EXCLUSIVE)
    first.close()
    assert second.access_to(P0, EXCLUSIVE).generation == 2
    first.reconnect()
    refused = first.access_to(P0, EXCLUSIVE, epoch=1)
    assert (refused.error_code, refused.reason) == (ErrorCode.PRODUCER_FENCED, LossReason.DISCONNECTED)
    machine.client("third").access_to(P0, FENCING)
    second.reconnect()
    refused = second.access_to(P0, EXCLUSIVE, epoch=2)
    assert (refused.reason, refused.generation, refused.owner_id) == (LossReason.EVICTED, 3, "third")


@pytest.mark.parametrize("epoch", [0, 1, 2, 4, 2**62])
def test_a_lower_or_unknown_epoch_is_fenced_permanently(machine: Machine, epoch: int) -> None:
    """ "if it's lower than the current topic epoch that the broker has, the producer will be considered
    fenced permanently"."""
    first = machine.client("first")
    for _ in range(3):
        first.access_to(P0, EXCLUSIVE)
        last = first
        first.close()
        first = machine.client("another" if first.owner_id == "first" else "first")
    zombie = machine.client(last.owner_id)
    for _ in range(3):
        refused = zombie.access_to(P0, EXCLUSIVE, epoch=epoch)
        assert refused.error_code == ErrorCode.PRODUCER_FENCED


def test_an_exclusive_producer_cannot_resume_beside_sharers(machine: Machine) -> None:
    first = machine.client("first")
    first.access_to(P0, EXCLUSIVE)
    first.close()
    assert machine.client("sharer").access_to(P0, SHARED).error_code == 0
    first.reconnect()
    assert first.access_to(P0, EXCLUSIVE, epoch=1).error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("loses_its_leader", [False, True])
def test_an_exclusive_producer_cannot_resume_after_sharers_have_left(
    machine: Machine, *, loses_its_leader: bool
) -> None:
    """ "Once a producer looses the exclusive access, no more messages from that producer can be published on
    the topic": others have written since, so its knowledge of the topic is out of date."""
    first, sharer = machine.client("first"), machine.client("sharer")
    first.access_to(P0, EXCLUSIVE)
    first.close()
    sharer.access_to(P0, SHARED)
    another = machine.client("another sharer")
    another.access_to(P0, SHARED)
    sharer.release(P0)
    another.close()
    if loses_its_leader:
        machine.fail_over()
    first.reconnect()
    assert first.access_to(P0, EXCLUSIVE, epoch=1).error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("is_graceful", [True, False])
def test_access_ends_with_a_graceful_close_and_with_the_connection(
    machine: Machine, *, is_graceful: bool
) -> None:
    """ "The client sends a CloseProducer command, for a graceful close"; "the TCP connection for the producer
    is closed"; "the topic is now up for grab for a new producer"."""
    first = machine.client("first")
    first.access_to(P0, EXCLUSIVE)
    if is_graceful:
        first.release(P0)
    else:
        first.close()
    assert machine.client("second").access_to(P0, EXCLUSIVE).generation == 2


def test_access_ends_when_the_producers_session_expires(machine: Machine) -> None:
    """ "This will happen for example if the producer experiences a network partition with the broker"."""
    first, sharer = machine.client("first"), machine.client("sharer")
    first.access_to(P0, EXCLUSIVE)
    sharer.access_to(P1, SHARED)
    second = machine.client("second")
    second.access_to(P0, WAIT, wait_ms=-1)
    machine.advance(SESSION_MS, second)
    assert owner(machine) == "second"
    assert sorted(machine.severed) == [first.connection, sharer.connection]


def test_exclusive_with_fencing_takes_access_from_all_producers(machine: Machine) -> None:
    sharers = [machine.client(str(number)) for number in range(2)]
    for sharer in sharers:
        sharer.access_to(P0, SHARED)
    waiter = machine.client("waiter")
    waiter.access_to(P0, WAIT, wait_ms=-1)
    thief = machine.client("thief")

    assert thief.access_to(P0, FENCING).generation == 1

    assert machine.severed == [sharer.connection for sharer in sharers]
    assert owner(machine) == "thief"
    assert waiter.renew(P0).position == 1, "the waiter keeps its place"
    second = machine.client("second thief")
    assert second.access_to(P0, FENCING).generation == 2
    assert thief.connection in machine.severed


def test_an_exclusive_producer_and_an_owner_exclude_each_other(machine: Machine) -> None:
    """Both use one mechanism: an owner by the own API is also the partition's writer."""
    lease = machine.client("lease", "app")
    lease.claim(P0)
    producer = machine.client("producer")
    assert producer.access_to(P0, EXCLUSIVE).error_code == ErrorCode.RESOURCE_OWNED
    assert producer.access_to(P0, WAIT, wait_ms=-1).position == 1
    lease.release(P0)
    assert owner(machine) == "producer"
    assert lease.claim(P0, 1).error_code == ErrorCode.RESOURCE_OWNED


def test_a_claim_is_refused_while_producers_share(machine: Machine) -> None:
    machine.client("sharer").access_to(P0, SHARED)
    lease = machine.client("lease", "app")
    assert lease.claim(P0).error_code == ErrorCode.RESOURCE_OWNED
    assert lease.claim(P0, 0).generation == 1


def test_a_waiting_producer_leaves_the_queue_after_its_wait_timeout(machine: Machine) -> None:
    machine.client("first").access_to(P0, EXCLUSIVE)
    second = machine.client("second")
    assert second.access_to(P0, WAIT, wait_ms=0).error_code == ErrorCode.RESOURCE_OWNED
    second.access_to(P0, WAIT, wait_ms=1000)
    machine.advance(1000, second)
    assert second.renew(P0).error_code == ErrorCode.REQUEST_TIMED_OUT
