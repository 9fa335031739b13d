"""`listeners` and related settings: their meaning, and the errors for invalid values."""

from __future__ import annotations

import pytest

from holdfast_log.broker.network.endpoints import Endpoint, Endpoints, parse_endpoints
from holdfast_log.broker.network.settings import SETTINGS
from holdfast_log.clients.settings import SettingError, Settings


def parsed(**values: str) -> Endpoints:
    """The endpoints of these settings; underscores in the names stand for dots."""
    named = {name.replace("_", "."): value for name, value in values.items()}
    return parse_endpoints(Settings(SETTINGS, named), "machine.example")


def test_by_default_a_broker_listens_on_all_interfaces_and_advertises_its_host() -> None:
    endpoints = parsed()
    assert endpoints.listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert endpoints.advertised == (Endpoint("PLAINTEXT", "PLAINTEXT", "machine.example", 9092),)
    assert endpoints.inter_broker == "PLAINTEXT"


def test_listener_names_are_mapped_to_protocols_and_hosts_kept() -> None:
    endpoints = parsed(
        listeners="inside://10.0.0.1:9092, OUTSIDE://[::1]:9093",
        advertised_listeners="INSIDE://broker1:9092,OUTSIDE://broker1.example.org:443",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    )
    assert endpoints.listeners == (
        Endpoint("INSIDE", "PLAINTEXT", "10.0.0.1", 9092),
        Endpoint("OUTSIDE", "PLAINTEXT", "::1", 9093),
    )
    assert [str(endpoint) for endpoint in endpoints.listeners] == [
        "INSIDE://10.0.0.1:9092",
        "OUTSIDE://[::1]:9093",
    ]
    assert endpoints.advertised[1].host == "broker1.example.org"
    assert endpoints.inter_broker == "INSIDE"


def test_listener_port_0_is_advertised_by_its_real_number() -> None:
    endpoints = parsed(
        listeners="A://127.0.0.1:0,B://127.0.0.1:0,C://127.0.0.1:9",
        advertised_listeners="A://x:0,B://x:80",
        listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
    )
    real = endpoints.with_real_ports({"A": 1001, "B": 1002, "C": 9})
    assert [endpoint.port for endpoint in real.listeners] == [1001, 1002, 9]
    assert [endpoint.port for endpoint in real.advertised] == [1001, 80]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"listeners": ""}, "listeners is empty"),
        ({"listeners": "9092"}, "listeners='9092' is not allowed: expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://h"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:65536"}, "port from 0 to 65535"),
        ({"listeners": "PLAINTEXT://h:9/path"}, "expected NAME://host:port"),
        ({"listeners": "NEW://h:1"}, "'NEW://h:1' is not allowed: expected a name from listener.security"),
        ({"listeners": "SSL://h:1,SSL://h:2"}, "SSL is given twice"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "PLAINTEXT already has that port"),
        ({"listeners": "PLAINTEXT://:1,SSL://h:1"}, "PLAINTEXT already has that port"),
        ({"advertised_listeners": "SSL://h:1"}, "expected a name that listeners has .PLAINTEXT."),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "expected a host that clients can reach"),
        ({"listener_security_protocol_map": "A"}, "expected NAME:PROTOCOL"),
        ({"listener_security_protocol_map": "A:TELNET"}, "PROTOCOL one of PLAINTEXT, SSL"),
        ({"listener_security_protocol_map": "A:SSL,a:SSL"}, "A is given twice"),
        ({"inter_broker_listener_name": "X"}, "expected a name that listeners has .PLAINTEXT."),
    ],
)
def test_listener_errors_name_the_key_the_value_and_the_allowed_values(
    values: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        parsed(**values)


def test_listeners_on_two_hosts_may_share_a_port_number() -> None:
    endpoints = parsed(
        listeners="A://10.0.0.1:9,B://10.0.0.2:9", listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT"
    )
    assert len(endpoints.listeners) == 2


def test_only_listeners_that_there_are_can_be_those_that_alter_the_cluster() -> None:
    with pytest.raises(SettingError, match=r"cluster\.alter\.listeners='ADMIN' is not allowed"):
        parsed(cluster_alter_listeners="ADMIN")
    parsed(cluster_alter_listeners="plaintext")


@pytest.mark.parametrize(
    ("listeners", "brokers"),
    [
        ("PLAINTEXT://127.0.0.1:9099", "INTERNAL://127.0.0.1:0"),
        ("PLAINTEXT://localhost:9099", "INTERNAL://localhost:0"),
        ("PLAINTEXT://[::1]:9099", "INTERNAL://[::1]:0"),
        ("PLAINTEXT://127.0.0.1:1,INTERNAL://127.0.0.1:2", "INTERNAL://127.0.0.1:2"),
    ],
)
def test_brokers_have_their_own_listener_where_only_those_of_clients_are_given(
    listeners: str, brokers: str
) -> None:
    endpoints = parsed(listeners=listeners, inter_broker_listener_name="internal")
    assert [str(each) for each in endpoints.listeners] == [listeners.partition(",")[0], brokers]
    assert endpoints.advertised == endpoints.listeners
    assert (endpoints.inter_broker, endpoints.brokers_have_own) == ("INTERNAL", True)


@pytest.mark.parametrize(
    ("listeners", "name"),
    [
        ("PLAINTEXT://:9099", "INTERNAL"),
        ("PLAINTEXT://10.0.0.1:9099", "INTERNAL"),
        ("PLAINTEXT://127.0.0.1:1,SSL://:2", "INTERNAL"),
        ("PLAINTEXT://127.0.0.1:9099", ""),
        ("PLAINTEXT://127.0.0.1:9099", "PLAINTEXT"),
        ("PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2", ""),
    ],
)
def test_elsewhere_brokers_share_the_first_listener_with_clients(listeners: str, name: str) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,SSL:PLAINTEXT"
    given = {"inter_broker_listener_name": name} if name else {}
    endpoints = parsed(listeners=listeners, listener_security_protocol_map=protocols, **given)
    assert len(endpoints.listeners) == len(listeners.split(","))
    assert (endpoints.inter_broker, endpoints.brokers_have_own) == ("PLAINTEXT", False)


def test_a_listener_of_brokers_that_is_added_speaks_what_its_name_stands_for() -> None:
    endpoints = parsed(
        listeners="SSL://127.0.0.1:9093",
        listener_security_protocol_map="SSL:SSL,INTERNAL:SSL",
        inter_broker_listener_name="INTERNAL",
    )
    assert [each.protocol for each in endpoints.listeners] == ["SSL", "SSL"]


def test_the_listener_of_brokers_is_advertised_as_it_is_if_only_those_of_clients_are_named() -> None:
    endpoints = parsed(
        listeners="PLAINTEXT://:9092,INTERNAL://:19092",
        advertised_listeners="PLAINTEXT://broker.example:443",
        inter_broker_listener_name="INTERNAL",
    )
    assert [str(each) for each in endpoints.advertised] == [
        "PLAINTEXT://broker.example:443",
        "INTERNAL://machine.example:19092",
    ]
    assert (endpoints.inter_broker, endpoints.brokers_have_own) == ("INTERNAL", True)
