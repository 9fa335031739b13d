"""A broker learns from ZooKeeper which producer ids the cluster has handed out."""

from __future__ import annotations

from twisted.internet.task import Clock

from holdfast_log.coordinator.cluster.handed_out_ids import FRESH_S, NEAR, READ_INTERVAL_S, HandedOutIds
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
