"""Producer ids are unique across brokers and sessions."""

from __future__ import annotations

import pytest
from twisted.internet.defer import gatherResults

from holdfast_log.coordinator.cluster.identity import create_if_missing
from holdfast_log.coordinator.cluster.producer_ids import BLOCK_SIZE, ProducerIds, ProducerIdsExhausted
from holdfast_log.coordinator.znodes.cluster import (
    PRODUCER_ID_BLOCK,
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)
from tests.coordinator.zookeeper.test_zookeeper import connected, end_session
from tests.reactor import in_thread, on_reactor


@on_reactor
async def test_brokers_assign_unique_ids_across_several_blocks(zookeeper: str) -> None:
    async with connected(zookeeper) as client, connected(zookeeper) as other:
        one, two = ProducerIds(client, 1), ProducerIds(other, 2)
        wanted = [each.next() for _ in range(BLOCK_SIZE + 10) for each in (one, two)]
        given = await gatherResults(wanted)
        assert len(set(given)) == len(given)
        block, _ = await client.session.get(PRODUCER_ID_BLOCK)
        assert decode_producer_id_block(block).last == 4 * BLOCK_SIZE - 1


@on_reactor
async def test_producer_ids_are_assigned_after_a_session_has_expired(zookeeper: str) -> None:
    async with connected(zookeeper) as client:
        ids = ProducerIds(client, 1)
        first = [await ids.next() for _ in range(BLOCK_SIZE)]
        await in_thread(end_session, client.session, zookeeper)
        assert await ids.next() == first[-1] + 1


@on_reactor
async def test_exhausted_producer_ids_fail_every_waiting_caller(zookeeper: str) -> None:
    async with connected(zookeeper) as client:
        last = encode_producer_id_block(ProducerIdBlock(1, 2**63 - 1000, 2**63 - 1))
        await create_if_missing(client.session, PRODUCER_ID_BLOCK, last)
        ids = ProducerIds(client, 1)
        first, second = ids.next(), ids.next()
        for wanted in (first, second):
            with pytest.raises(ProducerIdsExhausted):
                await wanted
