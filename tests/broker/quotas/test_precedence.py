"""The limit of a user's client is found in Kafka's order of precedence."""

from __future__ import annotations

import pytest

from holdfast_log.broker.quotas.buckets import Buckets
from holdfast_log.broker.quotas.entities import (
    ABSENT,
    DEFAULT,
    NAME_CHARACTERS_MAX,
    QuotaEntity,
    config_name,
    entity_at,
    entity_of,
    normal_address,
)
from holdfast_log.broker.quotas.precedence import QuotaTable
from holdfast_log.broker.quotas.sensors import RateSensor
from holdfast_log.protocol.errors import BrokerError

ORDER = [
    (QuotaEntity("anna", "app"), ("anna", "app")),
    (QuotaEntity("anna", DEFAULT), ("anna", "app")),
    (QuotaEntity("anna", ABSENT), ("anna", None)),
    (QuotaEntity(DEFAULT, "app"), ("anna", "app")),
    (QuotaEntity(DEFAULT, DEFAULT), ("anna", "app")),
    (QuotaEntity(DEFAULT, ABSENT), ("anna", None)),
    (QuotaEntity(ABSENT, "app"), ("anna", "app")),
    (QuotaEntity(ABSENT, DEFAULT), ("anna", "app")),
]
"""Entities that apply to client app of user anna, the first one first, and whose use counts together."""


def test_the_first_entity_in_the_order_of_precedence_applies() -> None:
    table = QuotaTable(default=99.0)
    for number, (entity, _) in enumerate(ORDER):
        table.set(entity, number + 1.0)
    for number, (entity, bucket) in enumerate(ORDER):
        found = table.find("anna", "app")
        assert found is not None
        assert (found.limit, found.bucket) == (number + 1.0, bucket)
        assert table.set(entity, None)
    found = table.find("anna", "app")
    assert found is not None and (found.limit, found.bucket) == (99.0, ("anna", "app"))


@pytest.mark.parametrize("entity", [QuotaEntity(ABSENT, "app"), QuotaEntity(ABSENT, DEFAULT), None])
def test_nobody_uses_up_the_quota_of_another_user_who_has_the_same_client_id(
    entity: QuotaEntity | None,
) -> None:
    table = QuotaTable(default=7.0)
    if entity is not None:
        table.set(entity, 5.0)
    anna, otto = table.find("anna", "app"), table.find("otto", "app")
    assert anna is not None and otto is not None
    assert anna.limit == otto.limit and anna.bucket != otto.bucket
    assert anna == table.find("anna", "app")


def test_entities_of_others_do_not_apply() -> None:
    table = QuotaTable()
    assert table.is_empty
    for entity in (
        QuotaEntity("otto", "app"),
        QuotaEntity("anna", "other"),
        QuotaEntity("otto"),
        QuotaEntity(ABSENT, "other"),
    ):
        table.set(entity, 1.0)
    assert table.find("anna", "app") is None
    assert not table.is_empty


def test_a_client_without_an_id_has_only_the_defaults() -> None:
    table = QuotaTable()
    table.set(QuotaEntity(ABSENT, DEFAULT), 5.0)
    found = table.find("anna", "")
    assert found is not None and (found.limit, found.bucket) == (5.0, ("anna", ""))


@pytest.mark.parametrize(
    ("entity", "kind", "name"),
    [
        (QuotaEntity("anna"), "users", "anna"),
        (QuotaEntity(DEFAULT), "users", "<default>"),
        (QuotaEntity("<default>"), "users", "%3Cdefault%3E"),
        (QuotaEntity("CN=a b*", "x/y~"), "users", "CN%3Da%20b%2A/clients/x%2Fy%7E"),
        (QuotaEntity(DEFAULT, DEFAULT), "users", "<default>/clients/<default>"),
        (QuotaEntity(ABSENT, "ä"), "clients", "%C3%A4"),
        (QuotaEntity(ip="10.0.0.1"), "ips", "10.0.0.1"),
        (QuotaEntity(ip=DEFAULT), "ips", "<default>"),
        (QuotaEntity(ip="::1"), "ips", "%3A%3A1"),
    ],
)
def test_an_entity_has_the_znode_that_kafka_gives_it(entity: QuotaEntity, kind: str, name: str) -> None:
    assert config_name(entity) == (kind, name)
    assert entity_at(kind, name) == entity


@pytest.mark.parametrize(("kind", "name"), [("users", "a/b"), ("users", "a/clients/b/c"), ("ips", "host")])
def test_a_znode_of_another_shape_is_no_entity(kind: str, name: str) -> None:
    assert entity_at(kind, name) is None


@pytest.mark.parametrize(
    "components",
    [
        [],
        [("user", "")],
        [("client-id", "..")],
        [("user", "a"), ("user", "b")],
        [("user", "a"), ("ip", "1.2.3.4")],
        [("ip", "localhost")],
        [("topic", "t")],
        [("client-id", "a" * (NAME_CHARACTERS_MAX + 1))],
    ],
)
def test_an_entity_that_kafka_does_not_have_is_refused(components: list[tuple[str, str | None]]) -> None:
    with pytest.raises(BrokerError):
        entity_of(components)


def test_addresses_are_compared_in_their_shortest_form() -> None:
    assert normal_address("0:0:0:0:0:0:0:1") == "::1"
    assert normal_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert normal_address("fe80::1%eth0") == "fe80::1"
    assert normal_address("example.org") is None


class TestBuckets:
    def test_busy_clients_beyond_the_maximum_share_a_sensor_until_others_are_idle(self) -> None:
        buckets = Buckets(lambda: RateSensor(30, 1.0), sensors_max=100)
        for number in range(1000):
            buckets.sensor(("anna", f"c{number}"), 1.0).record(10.0, 1.0, 1.0)
        assert len(buckets) == 100
        shared = buckets.sensor(("anna", "c500"), 1.0)
        assert shared is buckets.sensor(("anna", "c600"), 1.0)
        assert shared.delay_s(1.0, 1.0) == pytest.approx(9000)
        own = buckets.sensor(("anna", "new"), 40.0)
        assert own is not shared
        assert len(buckets) == 1

    def test_a_client_keeps_its_sensor(self) -> None:
        buckets = Buckets(lambda: RateSensor(30, 1.0))
        sensor = buckets.sensor(("anna", None), 0.0)
        sensor.record(1.0, 1.0, 100.0)
        buckets.sensor(("otto", None), 100.0)
        assert buckets.sensor(("anna", None), 100.0) is sensor
