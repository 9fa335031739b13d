"""Quotas are described and altered in ZooKeeper as Kafka does it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.handlers.alter_client_quotas import AlterClientQuotasHandler
from holdfast_log.broker.handlers.describe_client_quotas import DescribeClientQuotasHandler
from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.broker.quotas.limits import QuotaLimits
from holdfast_log.broker.quotas.settings import QuotaSettings
from holdfast_log.broker.quotas.store import QuotaStore
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.znodes.configs import CONFIG_CHANGES, encode_config
from holdfast_log.coordinator.znodes.layout import PERSISTENT_PATHS
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    AlteredQuota,
    OpData,
)
from holdfast_log.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.models.instant_zookeeper import InstantZooKeeper

Names = Mapping[str, str | None]


class Quotas:
    """A broker's quota handlers on ZooKeeper."""

    def __init__(self, entities_max: int = 100) -> None:
        self.zookeeper = InstantZooKeeper()
        for path in PERSISTENT_PATHS:
            parts = path.split("/")
            for count in range(2, len(parts) + 1):
                self.zookeeper.znodes.setdefault("/".join(parts[:count]), (b"", 0))
        self.dynamic = DynamicConfigs(self.zookeeper, Clock())
        self.limits = QuotaLimits(QuotaSettings())
        self.dynamic.add_listener(self.limits.configs_changed)
        store = QuotaStore(self.dynamic, entities_max)
        self.dynamic.add_listener(store.configs_changed)
        self._clock = Clock()
        self._dispatcher = Dispatcher(RepeatedLog(Clock()))
        self._dispatcher.add(
            [
                AlterClientQuotasHandler(store, ClusterRights(), LongAnswers(self._clock)),
                DescribeClientQuotasHandler(store, LongAnswers(Clock())),
            ]
        )

    def ask(self, request: Request[Any]) -> Any:
        answers: list[Any] = []
        self._dispatcher.call_local(request).addCallback(answers.append)
        self._clock.advance(0)
        (answer,) = answers
        return answer

    def alter(self, names: Names, limits: Mapping[str, float | None], *, validate_only: bool = False) -> int:
        """Alter the quotas of one entity. Returns the error code."""
        quota = AlteredQuota(
            entity=[AlteredEntity(entity_type=kind, entity_name=name) for kind, name in names.items()],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()],
        )
        answer = self.ask(AlterClientQuotasRequest(entries=[quota], validate_only=validate_only))
        (entry,) = answer.entries
        assert {part.entity_type: part.entity_name for part in entry.entity} == dict(names)
        return int(entry.error_code)

    def describe(self, *parts: tuple[str, int, str | None], strict: bool = False) -> Any:
        components = [
            ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in parts
        ]
        return self.ask(DescribeClientQuotasRequest(components=components, strict=strict))

    def found(self, *parts: tuple[str, int, str | None], strict: bool = False) -> dict[Any, dict[str, float]]:
        """The quotas that match, by (entity type, name) pairs."""
        return {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in self.describe(*parts, strict=strict).entries
        }

    def config(self, path: str) -> dict[str, str]:
        data, _ = self.zookeeper.znodes[path]
        value = json.loads(data)
        assert value["version"] == 1
        found: dict[str, str] = value["config"]
        return found

    def notifications(self) -> list[str]:
        return [
            json.loads(data)["entity_path"]
            for path, (data, _) in sorted(self.zookeeper.znodes.items())
            if path.startswith("/config/changes/")
        ]


@pytest.fixture
def quotas() -> Quotas:
    return Quotas()


def test_quotas_are_stored_and_announced_as_kafka_does(quotas: Quotas) -> None:
    assert quotas.alter({"user": "CN=a b"}, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}) == 0
    assert quotas.alter({"user": "anna", "client-id": None}, {"consumer_byte_rate": 5.0}) == 0
    assert quotas.alter({"client-id": "app"}, {"controller_mutation_rate": 0.5}) == 0
    assert quotas.alter({"ip": "10.0.0.1"}, {"connection_creation_rate": 7.0}) == 0
    assert quotas.config("/config/users/CN%3Da%20b") == {
        "producer_byte_rate": "1024",
        "request_percentage": "12.5",
    }
    assert quotas.config("/config/users/anna/clients/<default>") == {"consumer_byte_rate": "5"}
    assert quotas.config("/config/clients/app") == {"controller_mutation_rate": "0.5"}
    assert quotas.config("/config/ips/10.0.0.1") == {"connection_creation_rate": "7"}
    assert quotas.notifications() == [
        "users/CN%3Da%20b",
        "users/anna/clients/<default>",
        "clients/app",
        "ips/10.0.0.1",
    ]


def test_altered_quotas_are_in_force_at_once(quotas: Quotas) -> None:
    quotas.alter({"user": None, "client-id": "app"}, {"producer_byte_rate": 1024.0})
    found = quotas.limits.find(QuotaKey.PRODUCE, "anna", "app")
    assert found is not None and (found.limit, found.bucket) == (1024.0, ("anna", "app"))
    quotas.alter({"user": None, "client-id": "app"}, {"producer_byte_rate": None})
    assert not quotas.limits.has_any(QuotaKey.PRODUCE)
    quotas.alter({"ip": None}, {"connection_creation_rate": 3.0})
    quotas.alter({"ip": "10.0.0.1"}, {"connection_creation_rate": 9.0})
    assert (quotas.limits.of_address("10.0.0.1"), quotas.limits.of_address("10.0.0.2")) == (9.0, 3.0)


def test_an_alteration_keeps_other_quotas_and_other_configs_of_the_entity(quotas: Quotas) -> None:
    quotas.alter({"user": "anna"}, {"producer_byte_rate": 10.0})
    scram = b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x","producer_byte_rate":"10"}}'
    quotas.zookeeper.znodes["/config/users/anna"] = (scram, 1)
    quotas.alter({"user": "anna"}, {"consumer_byte_rate": 20.0, "request_percentage": None})
    assert quotas.config("/config/users/anna") == {
        "SCRAM-SHA-256": "salt=x",
        "consumer_byte_rate": "20",
        "producer_byte_rate": "10",
    }
    assert quotas.found() == {(("user", "anna"),): {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0}}


def test_a_validated_alteration_changes_nothing(quotas: Quotas) -> None:
    assert quotas.alter({"user": "anna"}, {"producer_byte_rate": 10.0}, validate_only=True) == 0
    assert quotas.alter({"user": "anna"}, {"producer_byte_rate": -1.0}, validate_only=True) == 42
    assert "/config/users/anna" not in quotas.zookeeper.znodes


@pytest.mark.parametrize(
    ("names", "limits"),
    [
        ({"user": "a"}, {"connection_creation_rate": 5.0}),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 5.0}),
        ({"user": "a"}, {"SCRAM-SHA-256": 5.0}),
        ({"user": "a"}, {"producer_byte_rate": 0.0}),
        ({"user": "a"}, {"producer_byte_rate": 1.5}),
        ({"user": "a"}, {"request_percentage": float("nan")}),
        ({"user": "a"}, {"request_percentage": float("inf")}),
        ({"ip": "example.org"}, {"connection_creation_rate": 5.0}),
        ({"user": ""}, {"producer_byte_rate": 5.0}),
    ],
)
def test_a_quota_that_is_not_allowed_is_refused(
    quotas: Quotas, names: Names, limits: dict[str, float | None]
) -> None:
    assert quotas.alter(names, limits) == ErrorCode.INVALID_REQUEST
    assert quotas.notifications() == []


class TestDescribe:
    @pytest.fixture(autouse=True)
    def entities(self, quotas: Quotas) -> None:
        for names in (
            {"user": "anna"},
            {"user": None},
            {"user": "anna", "client-id": "app"},
            {"user": "anna", "client-id": None},
            {"client-id": "app"},
            {"client-id": None},
        ):
            assert quotas.alter(names, {"producer_byte_rate": 2000.0}) == 0
        assert quotas.alter({"ip": "10.0.0.1"}, {"connection_creation_rate": 10.0}) == 0

    def test_no_filter_selects_everything(self, quotas: Quotas) -> None:
        assert len(quotas.found()) == 7
        assert quotas.found(strict=True) == {}

    def test_a_name_is_matched_exactly(self, quotas: Quotas) -> None:
        both = (("user", "anna"), ("client-id", "app"))
        default = (("user", "anna"), ("client-id", None))
        assert set(quotas.found(("user", 0, "anna"))) == {(("user", "anna"),), both, default}
        assert set(quotas.found(("user", 0, "anna"), strict=True)) == {(("user", "anna"),)}
        assert set(quotas.found(("user", 0, "anna"), ("client-id", 0, "app"))) == {both}

    def test_the_default_is_matched_alone(self, quotas: Quotas) -> None:
        assert set(quotas.found(("user", 1, None))) == {(("user", None),)}
        assert set(quotas.found(("client-id", 1, None), strict=True)) == {(("client-id", None),)}

    def test_any_name_includes_the_default(self, quotas: Quotas) -> None:
        assert set(quotas.found(("client-id", 2, None), strict=True)) == {
            (("client-id", "app"),),
            (("client-id", None),),
        }
        assert set(quotas.found(("ip", 2, None))) == {(("ip", "10.0.0.1"),)}

    @pytest.mark.parametrize(
        ("parts", "code"),
        [
            ([("user", 0, "a"), ("user", 0, "b")], ErrorCode.INVALID_REQUEST),
            ([("user", 0, "a"), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
            ([("", 2, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
            ([("tenant", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ],
    )
    def test_a_filter_that_kafka_does_not_have_is_refused(
        self, quotas: Quotas, parts: list[tuple[str, int, str | None]], code: ErrorCode
    ) -> None:
        answer = quotas.describe(*parts)
        assert (answer.error_code, answer.entries) == (code, None)
        assert answer.error_message

    def test_what_other_software_wrote_is_seen_without_a_notification(self, quotas: Quotas) -> None:
        quotas.zookeeper.znodes["/config/clients/late"] = (
            b'{"version":1,"config":{"consumer_byte_rate":"3"}}',
            0,
        )
        assert quotas.found(("client-id", 0, "late")) == {
            (("client-id", "late"),): {"consumer_byte_rate": 3.0}
        }


def test_a_value_that_is_no_quota_is_logged_and_limits_nothing(
    quotas: Quotas, caplog: pytest.LogCaptureFixture
) -> None:
    quotas.alter({"client-id": "app"}, {"producer_byte_rate": 10.0, "consumer_byte_rate": 10.0})
    quotas.zookeeper.znodes["/config/clients/app"] = (
        b'{"version":1,"config":{"consumer_byte_rate":"12","producer_byte_rate":"much"}}',
        1,
    )
    quotas.dynamic.refresh("clients", "app")
    assert "producer_byte_rate='much' in /config/clients/app" in caplog.text
    assert not quotas.limits.has_any(QuotaKey.PRODUCE)
    found = quotas.limits.find(QuotaKey.FETCH, "anna", "app")
    assert found is not None and found.limit == 12.0


def test_quotas_that_cannot_be_read_are_not_altered(quotas: Quotas) -> None:
    quotas.zookeeper.znodes["/config/clients/app"] = (b"{", 0)
    assert quotas.alter({"client-id": "app"}, {"producer_byte_rate": 1.0}) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert quotas.zookeeper.znodes["/config/clients/app"][0] == b"{"


def test_a_starting_broker_reads_the_quotas_of_users_clients() -> None:
    one = Quotas()
    one.alter({"user": "anna", "client-id": "app"}, {"producer_byte_rate": 10.0})
    limits = QuotaLimits(QuotaSettings())
    dynamic = DynamicConfigs(one.zookeeper, Clock())
    dynamic.add_listener(limits.configs_changed)
    loaded: Deferred[None] = dynamic.load()
    assert loaded.called
    assert limits.find(QuotaKey.PRODUCE, "anna", "app") is not None
    assert limits.find(QuotaKey.PRODUCE, "anna", "other") is None


def test_a_change_is_found_although_its_notification_was_removed_before_this_broker_read_it() -> None:
    """By a broker whose clock is ahead, to which the notification looked old."""
    one = Quotas()
    session: Any = one.zookeeper.session
    limits = QuotaLimits(QuotaSettings())
    dynamic = DynamicConfigs(one.zookeeper, Clock())
    dynamic.add_listener(limits.configs_changed)
    dynamic.registered(session, 1)
    children = session.children

    def with_one_that_is_gone(path: str, *watch: Any) -> Any:
        gone = ["config_change_0000099999"] if path == CONFIG_CHANGES else []
        return children(path, *watch).addCallback(lambda names: [*names, *gone])

    session.children = with_one_that_is_gone
    one.zookeeper.znodes["/config/clients/app"] = (encode_config({"producer_byte_rate": "5"}), 0)
    one.alter({"client-id": "other"}, {"producer_byte_rate": 1.0})

    found = limits.find(QuotaKey.PRODUCE, "anna", "app")
    assert found is not None and found.limit == 5.0


@pytest.mark.parametrize(
    "everybody",
    [
        {"user": None},
        {"client-id": None},
        {"user": None, "client-id": None},
        {"user": None, "client-id": "app"},
        {"user": "ANONYMOUS"},
        {"user": "ANONYMOUS", "client-id": None},
    ],
)
@pytest.mark.parametrize(
    ("key", "minimum"),
    [
        ("producer_byte_rate", 1024.0),
        ("consumer_byte_rate", 1024.0),
        ("request_percentage", 1.0),
        ("controller_mutation_rate", 0.1),
    ],
)
def test_nobody_stops_all_clients_by_a_quota_of_nearly_nothing(
    quotas: Quotas, everybody: Names, key: str, minimum: float
) -> None:
    for validate_only in (True, False):
        refused = quotas.alter(everybody, {key: minimum / 2}, validate_only=validate_only)
        assert refused == ErrorCode.POLICY_VIOLATION
    assert quotas.found() == {}
    assert quotas.alter(everybody, {key: minimum}) == ErrorCode.NONE
    assert quotas.alter({"user": "anna", "client-id": None}, {key: 1.0}) == ErrorCode.NONE
    assert quotas.alter({"client-id": "app"}, {key: 1.0}) == ErrorCode.NONE


def test_brokers_keep_a_limited_number_of_entities_with_quotas() -> None:
    quotas = Quotas(entities_max=3)
    for number in range(3):
        assert quotas.alter({"client-id": f"app-{number}"}, {"producer_byte_rate": 5.0}) == 0
    for one_more in ({"client-id": "app-3"}, {"user": "anna", "client-id": "app"}, {"ip": "127.0.0.1"}):
        limits = {"connection_creation_rate" if "ip" in one_more else "producer_byte_rate": 5.0}
        assert quotas.alter(one_more, limits) == ErrorCode.POLICY_VIOLATION
    assert quotas.alter({"client-id": "app-1"}, {"producer_byte_rate": 6.0}) == 0
    assert quotas.alter({"client-id": "app-2"}, {"producer_byte_rate": None}) == 0
    assert quotas.alter({"ip": "127.0.0.1"}, {"connection_creation_rate": 5.0}) == 0


def test_an_entity_that_is_named_many_times_is_not_altered_at_all(quotas: Quotas) -> None:
    entries = [
        AlteredQuota(
            entity=[AlteredEntity(entity_type="client-id", entity_name=name)],
            ops=[OpData(key="producer_byte_rate", value=float(number + 1), remove=False)],
        )
        for number, name in enumerate(["often"] * 400 + ["once"])
    ]
    answer = quotas.ask(AlterClientQuotasRequest(entries=entries, validate_only=False))
    codes = [entry.error_code for entry in answer.entries]
    assert codes == [ErrorCode.INVALID_REQUEST] * 400 + [ErrorCode.NONE]
    assert quotas.found() == {(("client-id", "once"),): {"producer_byte_rate": 401.0}}
