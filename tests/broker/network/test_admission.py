"""Which connections count as another broker's, and what the broker says about it when it starts."""

from __future__ import annotations

import pytest

from holdfast_log.broker.network.admission import BrokerAdmission, admission_of, notices
from holdfast_log.broker.network.endpoints import Endpoints, parse_endpoints
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.clients.settings import SettingError

OWN = {"listeners": "PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:19092"}
NAMED = {"inter.broker.listener.name": "INTERNAL"}
SECRET = {"cluster.secret.file": "/run/secret"}
SHARED = {"listeners": "PLAINTEXT://127.0.0.1:9092"}


def admitted(*given: dict[str, str]) -> tuple[BrokerAdmission, Endpoints]:
    values = {"zookeeper.connect": "z:1"}
    for each in given:
        values |= each
    settings = broker_settings(values)
    endpoints = parse_endpoints(settings, "this.machine")
    return admission_of(settings, endpoints), endpoints


@pytest.mark.parametrize(
    ("given", "trusted", "own"),
    [
        ([OWN, NAMED], {"INTERNAL"}, "INTERNAL"),
        ([OWN], {"PLAINTEXT"}, None),
        ([SHARED], {"PLAINTEXT"}, None),
        ([SHARED, NAMED], {"INTERNAL"}, "INTERNAL"),
        ([OWN, NAMED, SECRET], set(), "INTERNAL"),
        ([SHARED, SECRET], set(), None),
        ([OWN, NAMED, SECRET, {"broker.listeners.trusted": "internal"}], {"INTERNAL"}, "INTERNAL"),
        (
            [OWN, NAMED, {"broker.listeners.trusted": "PLAINTEXT,INTERNAL"}],
            {"PLAINTEXT", "INTERNAL"},
            "INTERNAL",
        ),
    ],
)
def test_brokers_are_known_by_their_listener_or_by_the_secret(
    given: list[dict[str, str]], trusted: set[str], own: str | None
) -> None:
    admission, _ = admitted(*given)
    assert (admission.trusted, admission.own) == (trusted, own)


@pytest.mark.parametrize(
    ("given", "is_open"),
    [([OWN, NAMED], False), ([SHARED], True), ([SHARED, SECRET], False), ([OWN], True)],
)
def test_clients_count_as_brokers_only_on_a_shared_listener_without_a_secret(
    given: list[dict[str, str]], is_open: bool
) -> None:
    assert admitted(*given)[0].is_open is is_open


def test_a_trusted_listener_must_exist() -> None:
    with pytest.raises(SettingError, match=r"broker.listeners.trusted='X' is not allowed: .*PLAINTEXT"):
        admitted(SHARED, {"broker.listeners.trusted": "X"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([OWN, NAMED], []),
        ([OWN, NAMED, SECRET], []),
        ([SHARED, NAMED], []),
        ([SHARED], [(True, "Clients and brokers share the listener PLAINTEXT://127.0.0.1:9092")]),
        ([SHARED, SECRET], []),
        (
            [NAMED, {"listeners": "PLAINTEXT://:9092,INTERNAL://:19092"}],
            [(True, "Other machines can connect to the brokers' listener INTERNAL://:19092")],
        ),
        ([NAMED, SECRET, {"listeners": "PLAINTEXT://:9092,INTERNAL://:19092"}], []),
        (
            [NAMED, {"listeners": "PLAINTEXT://:9092,INTERNAL://127.0.0.1:19092"}],
            [(False, "Brokers on other machines cannot join this broker")],
        ),
        (
            [OWN, NAMED, {"broker.listeners.trusted": "PLAINTEXT,INTERNAL"}],
            [(True, "Clients and brokers share the listener PLAINTEXT://127.0.0.1:9092")],
        ),
    ],
)
def test_the_broker_says_what_its_listeners_mean_and_what_to_do(
    given: list[dict[str, str]], said: list[tuple[bool, str]]
) -> None:
    found = notices(*admitted(*given))
    assert [each.is_warning for each in found] == [is_warning for is_warning, _ in said]
    for notice, (_, text) in zip(found, said, strict=True):
        assert notice.text.startswith(text)
        assert "cluster.secret.file" in notice.text
