"""What the settings of SASL listeners mean, and what is said of those that cannot work."""

from __future__ import annotations

import pytest

from holdfast_log.broker.network.admission import admission_of, notices
from holdfast_log.broker.network.endpoints import parse_endpoints
from holdfast_log.broker.security.sasl.listeners import sasl_setup
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.clients.settings import SettingError
from tests.broker.security.sasl.gated import PLAIN_USERS, setup

LISTENERS = {
    "zookeeper.connect": "z:1",
    "listeners": "CLIENTS://10.0.0.1:1,BROKERS://10.0.0.1:2",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


def test_each_listener_has_its_mechanisms_and_users() -> None:
    found = setup(
        listener_name_clients_sasl_enabled_mechanisms="SCRAM-SHA-512,PLAIN",
        connections_max_reauth_ms="5000",
        listener_name_clients_connections_max_reauth_ms="4000",
        listener_name_clients_plain_connections_max_reauth_ms="3000",
    )
    clients, brokers = found.listeners["CLIENTS"], found.listeners["BROKERS"]
    assert list(clients.mechanisms) == ["SCRAM-SHA-512", "PLAIN"]
    assert list(brokers.mechanisms) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert clients.mechanisms["PLAIN"].users == {"broker": "secret", "alice": "hers"}
    assert [each.reauth_ms for each in clients.mechanisms.values()] == [4000, 3000]
    assert {each.reauth_ms for each in brokers.mechanisms.values()} == {5000}
    assert found.has_scram


def test_brokers_log_in_as_the_user_of_their_listener() -> None:
    found = setup()
    assert found.login is not None
    assert (found.login.mechanism, found.login.user) == ("PLAIN", "broker")
    assert found.broker_users == {"broker"}
    assert setup(broker_users="old,new").broker_users == {"old", "new"}


def test_nothing_shows_a_password() -> None:
    assert "secret" not in repr(setup()) and "hers" not in repr(setup())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sasl_enabled_mechanisms": ""}, "sasl.enabled.mechanisms is missing"),
        ({"sasl_enabled_mechanisms": "GSSAPI"}, "any of PLAIN, SCRAM-SHA-256"),
        (
            {"listener_name_clients_plain_sasl_jaas_config": "nothing"},
            "listener.name.clients.plain.sasl.jaas",
        ),
        (
            {"listener_name_clients_plain_sasl_jaas_config": 'a.PlainLoginModule required user_x="";'},
            "a user with an empty password",
        ),
        ({"listener_name_clients_plain_sasl_jaas_config": "a.PlainLoginModule required;"}, "has no users"),
        (
            {"listener_name_clients_plain_sasl_jaas_config": 'a.ScramLoginModule required user_x="y";'},
            "ScramLoginModule is not the login module of PLAIN",
        ),
        ({"sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-512"}, "has no username and password"),
        (
            {
                "sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-512",
                "listener_name_brokers_sasl_enabled_mechanisms": "PLAIN",
            },
            "has only PLAIN",
        ),
    ],
)
def test_what_is_missing_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said) as raised:
        setup(**given)
    assert '"hers"' not in str(raised.value)


def test_brokers_need_a_mechanism_for_their_listener() -> None:
    values = {**LISTENERS, "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    settings = broker_settings(values)
    with pytest.raises(SettingError, match=r"inter\.broker\.protocol is missing"):
        sasl_setup(settings, parse_endpoints(settings, "host"))


def test_a_connection_to_a_sasl_listener_is_no_brokers_before_it_has_authenticated() -> None:
    settings = broker_settings(LISTENERS)
    endpoints = parse_endpoints(settings, "host")
    admission = admission_of(settings, endpoints)
    assert admission.trusted == frozenset() and admission.by_user == {"BROKERS"}
    assert notices(admission, endpoints) == []


def test_with_a_secret_only_the_secret_proves_a_broker() -> None:
    settings = broker_settings({**LISTENERS, "cluster.secret.file": "/x"})
    admission = admission_of(settings, parse_endpoints(settings, "host"))
    assert admission.trusted == admission.by_user == frozenset()


def test_settings_of_listeners_are_known_and_hide_passwords() -> None:
    name = "listener.name.clients.plain.sasl.jaas.config"
    settings = broker_settings({**LISTENERS, name: PLAIN_USERS})
    assert name in settings.rows and not settings.unknown
    assert settings.rows[name].type.value == "password"
