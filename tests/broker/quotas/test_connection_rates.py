"""Connections that come too fast are read from later; brokers' own listeners are exempt."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.metrics.row import read_single
from holdfast_log.broker.quotas.connection_rates import ConnectionRates
from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.broker.quotas.limits import QuotaLimits
from holdfast_log.broker.quotas.metrics import QUOTA_METRICS, ThrottlingParts
from holdfast_log.broker.quotas.settings import QuotaSettings
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.broker.settings.rows import broker_settings
from tests.models.quotas import client_quotas


class Rates:
    def __init__(self, listeners: str = "PLAINTEXT://:1", brokers: str | None = None, **given: Any) -> None:
        self.clock = Clock()
        self.limits = QuotaLimits(QuotaSettings())
        values = {name.replace("_", "."): value for name, value in given.items()}
        protocols = "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT"
        self.settings = SettingsInForce(
            broker_settings(
                {
                    "zookeeper.connect": "z:1",
                    "listeners": listeners,
                    "listener.security.protocol.map": protocols,
                    **values,
                }
            )
        )
        self.rates = ConnectionRates(self.limits, self.settings, brokers, self.clock)

    def limit(self, address: str, rate: int) -> None:
        self.limits.configs_changed("ips", address, {"connection_creation_rate": str(rate)})

    def delays(self, count: int, host: str = "192.0.2.1", listener: str = "PLAINTEXT") -> list[float | None]:
        return [self.rates.delay_s(listener, host) for _ in range(count)]


def test_without_limits_no_connection_waits() -> None:
    rates = Rates()
    assert rates.delays(10_000) == [0.0] * 10_000
    assert (rates.rates.delayed, rates.rates.refused) == (0, 0)


def test_connections_to_the_broker_come_at_its_rate() -> None:
    rates = Rates(max_connection_creation_rate=10)
    assert rates.delays(12) == pytest.approx([0.0] * 10 + [0.1, 0.2])
    rates.clock.advance(0.2)
    assert rates.delays(1, host="192.0.2.9") == pytest.approx([0.1])
    rates.clock.advance(2)
    assert rates.delays(10) == [0.0] * 10


def test_a_changed_rate_applies_at_once() -> None:
    rates = Rates()
    rates.delays(100)
    rates.settings.overlay({"max.connection.creation.rate": "10"}, {})
    assert rates.delays(11)[-1] == pytest.approx(0.1)
    rates.settings.overlay({}, {})
    assert rates.delays(1) == [0.0]


def test_a_listener_may_have_a_rate_of_its_own() -> None:
    rates = Rates(
        "PLAINTEXT://:1,INNER://:2", "INNER", **{"listener.name.plaintext.max.connection.creation.rate": 5}
    )
    assert rates.delays(6)[-1] == pytest.approx(0.2)
    assert rates.delays(100, listener="INNER") == [0.0] * 100
    rates.settings.overlay({"listener.name.inner.max.connection.creation.rate": "50"}, {})
    assert rates.delays(51, listener="INNER")[-1] == pytest.approx(0.02)


def test_a_rate_of_a_listener_that_the_broker_does_not_have_has_no_effect() -> None:
    """Another broker may have that listener."""
    rates = Rates()
    rates.settings.check({"listener.name.other.max.connection.creation.rate": "5"})
    rates.settings.overlay({"listener.name.other.max.connection.creation.rate": "5"}, {})
    assert rates.delays(100) == [0.0] * 100


def test_a_listener_for_brokers_alone_is_exempt_from_the_limits_of_clients() -> None:
    alone = Rates("PLAINTEXT://:1,INNER://:2", "INNER", max_connection_creation_rate=1)
    alone.limit("<default>", 1)
    assert alone.delays(50, listener="INNER") == [0.0] * 50
    assert alone.delays(2)[-1] == pytest.approx(1.0)


def test_an_address_has_its_own_rate_or_the_default() -> None:
    rates = Rates()
    rates.limit("<default>", 2)
    rates.limit("192.0.2.1", 4)
    assert rates.delays(5, host="192.0.2.1")[-1] == pytest.approx(0.25)
    assert rates.delays(3, host="192.0.2.2")[-1] == pytest.approx(0.5)
    assert rates.delays(2, host="192.0.2.3") == [0.0, 0.0]
    assert rates.delays(2, host="::ffff:192.0.2.1")[-1] == pytest.approx(0.75)
    assert rates.rates.delayed == 4


def test_connections_that_would_wait_for_too_long_are_refused_and_cost_nothing() -> None:
    rates = Rates()
    rates.limit("192.0.2.1", 1)
    delays = rates.delays(1000)
    assert [delay for delay in delays if delay is not None] == pytest.approx(list(range(31)))
    assert rates.rates.refused == 969
    rates.clock.advance(2)
    assert rates.delays(2) == pytest.approx([29.0, 30.0])


def test_the_metrics_count_throttled_requests_and_delayed_connections() -> None:
    rates = Rates()
    rates.limit("192.0.2.1", 1)
    rates.delays(40)
    clients = client_quotas(rates.limits, rates.clock)
    clients.throttled[QuotaKey.PRODUCE].times += 3
    clients.throttled[QuotaKey.PRODUCE].total_ms += 500
    found = read_single(QUOTA_METRICS, ThrottlingParts(clients, rates.rates))
    assert {name: value for name, value in found.items() if value} == {
        "holdfast_quota_producer_byte_rate_throttled_total": 3,
        "holdfast_quota_producer_byte_rate_throttle_ms_total": 500,
        "holdfast_quota_connections_delayed_total": 30,
        "holdfast_quota_connections_refused_total": 9,
    }


def test_a_rate_in_zookeeper_that_is_no_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    rates = Rates()
    with caplog.at_level(logging.ERROR):
        rates.limit("example.org", 1)
    assert "/config/ips/example.org" in caplog.text
    assert not rates.limits.has_addresses
