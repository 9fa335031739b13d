"""What a broker that is about to join finds: the other brokers, and ZooKeeper's time."""

from __future__ import annotations

from holdfast_log.coordinator.cluster.neighbourhood import Neighbourhood, look_around
from holdfast_log.coordinator.znodes.brokers import BROKER_IDS, BrokerInfo, broker_path, encode_broker
from holdfast_log.coordinator.znodes.cluster import CLOCK
from holdfast_log.coordinator.zookeeper.interface import ZooKeeper
from tests.models.grounds import Ground

REQUEST_MS_MAX = 60_000


def brokers(*infos: BrokerInfo) -> dict[str, bytes]:
    return {broker_path(info.broker_id): encode_broker(info, 0) for info in infos}


async def found(zookeeper: ZooKeeper, znodes: dict[str, bytes], date_ms: int) -> tuple[Neighbourhood, int]:
    """What broker 1 finds at a time of its clock, and the time of ZooKeeper's clock then."""
    session = zookeeper.session
    for path, data in znodes.items():
        parent = ""
        for name in path.split("/")[1:-1]:
            parent += f"/{name}"
            if await session.exists(parent) is None:
                await session.create(parent)
        await session.create(path, data)
    around = await look_around(zookeeper, 1, lambda: date_ms)
    stat = await session.exists(CLOCK)
    assert stat is not None
    return around, stat.modified_ms


def test_the_other_brokers_are_found_and_what_is_no_broker_is_left_out(ground: Ground) -> None:
    third = BrokerInfo(3, (), features={"holdfast.inter.broker.protocol": (1, 4)}, protocol=4)
    znodes = {
        **brokers(BrokerInfo(1, ()), BrokerInfo(2, ()), third),
        f"{BROKER_IDS}/somebody": b"",
        f"{BROKER_IDS}/4": b"no broker",
    }

    async def scenario(ground: Ground) -> None:
        around, _ = await found(ground.client(), znodes, 0)
        assert [(each.broker_id, each.protocol, each.newest_protocol) for each in around.brokers] == [
            (2, 1, 1), (3, 4, 4),
        ]  # fmt: skip

    ground.play(scenario)


def test_a_clock_is_compared_with_zookeepers(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        client = ground.client()
        _, now_ms = await found(client, {}, 0)
        for ahead_ms in (3_600_000, -3_600_000):
            around, _ = await found(client, {}, now_ms + ahead_ms)
            assert abs(around.ahead_ms - ahead_ms) < REQUEST_MS_MAX

    ground.play(scenario)


def test_the_first_broker_of_a_cluster_is_alone(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        around, _ = await found(ground.client(), {}, 0)
        assert around.brokers == ()

    ground.play(scenario)
