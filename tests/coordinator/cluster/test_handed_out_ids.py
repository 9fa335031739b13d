"""A broker learns from ZooKeeper which producer ids the cluster has handed out."""

from __future__ import annotations

from twisted.internet.task import Clock

from holdfast_log.coordinator.cluster.handed_out_ids import (
    FRESH_S,
    NEAR,
    READ_INTERVAL_S,
    WAIT_S,
    WAITING_MAX,
    HandedOutIds,
)
from holdfast_log.coordinator.znodes.cluster import (
    PRODUCER_ID_BLOCK,
    ProducerIdBlock,
    encode_producer_id_block,
)
from holdfast_log.protocol.errors import ErrorCode
from tests.models.instant_zookeeper import InstantZooKeeper

AGAIN, NEVER = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_PRODUCER_ID_MAPPING


class Broker:
    def __init__(self) -> None:
        self.clock = Clock()
        self.zookeeper = InstantZooKeeper()
        self.ids = HandedOutIds(self.zookeeper, self.clock)

    def another_takes(self, first: int) -> None:
        data = encode_producer_id_block(ProducerIdBlock(2, first, first + 999))
        self.zookeeper.znodes[PRODUCER_ID_BLOCK] = data, 0

    def ask(self, producer_id: int) -> list[ErrorCode | None] | None:
        """What `refusal` says once the wait is over; None if there is nothing to wait for."""
        question = self.ids.question(producer_id)
        if question is None:
            return None
        told: list[ErrorCode | None] = []
        question.addCallback(lambda _: told.append(self.code(producer_id)))
        return told

    def code(self, producer_id: int) -> ErrorCode | None:
        refused = self.ids.refusal(producer_id)
        return None if refused is None else refused.code


def test_an_id_of_another_brokers_block_is_refused_once_and_then_known() -> None:
    broker = Broker()
    broker.another_takes(3000)
    assert broker.code(3999) is AGAIN
    assert broker.code(3999) is None
    assert broker.code(0) is None
    assert broker.code(4000) is AGAIN


def test_a_block_of_its_own_needs_no_zookeeper() -> None:
    broker = Broker()
    broker.zookeeper.is_held = True
    broker.ids.reserved(1000)
    assert broker.code(999) is None
    assert broker.zookeeper.held == 0


def test_an_id_far_above_all_blocks_is_refused_for_good_while_the_znode_was_read_lately() -> None:
    broker = Broker()
    broker.another_takes(0)
    assert broker.code(999) is AGAIN
    assert broker.code(999 + NEAR) is AGAIN
    assert broker.code(1000 + NEAR) is NEVER
    broker.zookeeper.is_held = True
    broker.clock.advance(FRESH_S)
    assert broker.code(1000 + NEAR) is AGAIN


def test_many_made_up_ids_have_the_znode_read_once_in_an_interval() -> None:
    broker = Broker()
    broker.zookeeper.is_held = True
    for producer_id in range(1000):
        assert broker.code(producer_id) is AGAIN
    assert broker.zookeeper.held == 1
    broker.another_takes(5000)
    broker.zookeeper.release()
    broker.zookeeper.is_held = True
    assert broker.code(6500) is AGAIN
    assert broker.zookeeper.held == 0
    broker.clock.advance(READ_INTERVAL_S)
    assert broker.zookeeper.held == 1


def test_an_id_that_is_refused_during_a_read_has_the_znode_read_again() -> None:
    broker = Broker()
    broker.zookeeper.is_held = True
    assert broker.code(10) is AGAIN
    assert broker.code(5000) is AGAIN
    broker.zookeeper.release()
    broker.another_takes(5000)
    broker.clock.advance(READ_INTERVAL_S)
    assert broker.code(5000) is None


def test_an_unreadable_znode_refuses_nothing_for_good() -> None:
    broker = Broker()
    broker.zookeeper.znodes[PRODUCER_ID_BLOCK] = b"garbage", 0
    assert broker.code(1 << 40) is AGAIN
    broker.another_takes(0)
    broker.clock.advance(READ_INTERVAL_S)
    assert broker.code(5) is AGAIN
    assert broker.code(5) in (AGAIN, None)


def test_a_request_waits_for_the_znode_and_is_not_refused() -> None:
    broker = Broker()
    broker.another_takes(3000)
    broker.zookeeper.is_held = True
    told = broker.ask(3999)
    assert told == [], "it waits"
    broker.zookeeper.release()
    assert told == [None]
    assert broker.ask(3999) is None, "the id is known"


def test_requests_go_on_in_their_order_whichever_read_they_wait_for() -> None:
    broker = Broker()
    broker.another_takes(0)
    broker.zookeeper.is_held = True
    order: list[int] = []

    def ask(producer_id: int) -> None:
        question = broker.ids.question(producer_id)
        assert question is not None
        question.addCallback(lambda _: order.append(producer_id))

    ask(10)
    ask(20)
    ask(5000)
    broker.zookeeper.release()
    assert order == [10, 20], "the read under way knows both; whether it knows 5000 is not certain"
    broker.another_takes(5000)
    broker.clock.advance(READ_INTERVAL_S)
    assert order == [10, 20, 5000] and broker.code(5000) is None


def test_a_request_waits_for_a_bounded_time_and_is_then_refused_for_now() -> None:
    broker = Broker()
    broker.zookeeper.is_held = True
    told = broker.ask(10)
    broker.clock.advance(WAIT_S - 0.1)
    assert told == []
    broker.clock.advance(0.1)
    assert told == [AGAIN]
    broker.zookeeper.release()
    assert told == [AGAIN] and broker.ids._waiting == []


def test_a_bounded_number_of_requests_waits() -> None:
    broker = Broker()
    broker.zookeeper.is_held = True
    asked = [broker.ask(number) for number in range(WAITING_MAX + 50)]
    assert [each is None for each in asked] == [False] * WAITING_MAX + [True] * 50
    assert broker.zookeeper.held == 1
    broker.another_takes(10**6)
    broker.zookeeper.release()
    assert all(each == [None] for each in asked[:WAITING_MAX])


def test_an_id_far_above_all_blocks_does_not_wait_while_the_znode_was_read_lately() -> None:
    broker = Broker()
    broker.another_takes(0)
    assert broker.code(999) is AGAIN
    broker.zookeeper.is_held = True
    assert broker.ask(1000 + NEAR) is None
