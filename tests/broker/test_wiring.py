"""A broker's handlers are found and get their dependencies by type."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, cast

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.network.admission import BrokerAdmission
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.setting_groups import Live, settings_group
from holdfast_log.broker.settings.rows import ROWS, broker_settings
from holdfast_log.broker.wiring.handlers import WiringError, build_handlers, handler_types
from holdfast_log.broker.wiring.node import WiredBroker, build_broker
from holdfast_log.broker.wiring.quotas import BROKER_CLIENT_ID
from holdfast_log.clients.settings import SettingError, Settings
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.zookeeper.interface import ZooKeeper
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast_log.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.broker.world import World
from tests.models.orders import update_metadata

NOT_SERVED = {
    "AllocateProducerIds",
}
"""Messages that this broker can decode but has no handler for."""

SETTINGS = broker_settings({"zookeeper.connect": "z:1"})
ADMISSION = BrokerAdmission(frozenset(("PLAINTEXT",)), None, has_secret=False)
CONSUMER_REQUESTS = (
    ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0),
    ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
)


@settings_group(ROWS)
@dataclass(frozen=True, slots=True)
class Balance:
    percentage: Annotated[int, "leader.imbalance.per.broker.percentage"]


@settings_group(ROWS)
@dataclass(frozen=True, slots=True)
class Threads:
    count: Annotated[int, "background.threads"]


@dataclass(eq=False)
class Asking(Handler[HeartbeatRequest, HeartbeatResponse]):
    """Requests a part, settings, and settings that follow dynamic changes."""

    request = HeartbeatRequest
    identity: BrokerIdentity
    threads: Threads
    balance: Live[Balance]
    seen: list[int] = field(init=False, default_factory=list)

    def handle(self, context: RequestContext, request: HeartbeatRequest) -> None: ...


@dataclass(frozen=True)
class Parts:
    identity: BrokerIdentity = field(default_factory=lambda: BrokerIdentity(1, "cluster", "PLAINTEXT"))


@dataclass(frozen=True)
class OtherParts(Parts):
    pass


@dataclass(eq=False)
class AskingForText(Handler[HeartbeatRequest, HeartbeatResponse]):
    request = HeartbeatRequest
    rack: str

    def handle(self, context: RequestContext, request: HeartbeatRequest) -> None: ...


def whole_broker(world: World, settings: Settings = SETTINGS) -> WiredBroker:
    zookeeper = cast(ZooKeeper, SimpleNamespace(add_listener=lambda listener: None))
    identity = BrokerIdentity(1, "cluster", "PLAINTEXT")
    return build_broker(settings, world.surroundings(zookeeper), world.logs, identity, ADMISSION, pytest.fail)


@pytest.fixture
def broker(tmp_path: Path) -> WiredBroker:
    return whole_broker(World(tmp_path))


def test_every_api_has_one_handler_in_a_whole_broker(broker: WiredBroker) -> None:
    found = Counter(handler.request.api.name for handler in handler_types())
    assert {name for name, count in found.items() if count > 1} == set()
    assert {api.name for api in APIS.values()} - set(found) == NOT_SERVED
    assert sorted(api.name for api in broker.cluster.dispatcher.apis) == sorted(found)


class TestProtocolsOfGroups:
    def answers(self, tmp_path: Path, protocols: str, request: Request[Any]) -> tuple[set[int], list[Any]]:
        """The APIs that are announced, and the answers to a request; none if the connection was closed."""
        world = World(tmp_path)
        settings = {"zookeeper.connect": "z:1", "group.coordinator.rebalance.protocols": protocols}
        broker = whole_broker(world, broker_settings(settings))
        world.dispatcher = broker.cluster.dispatcher
        broker.cluster.metadata.update(update_metadata())
        client = world.client()
        said = client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        client.ask(request)
        answers = client.answers()
        assert client.connection.is_closed == (answers == [])
        return {row.api_key for row in said.api_keys}, answers

    @pytest.mark.parametrize("request_", CONSUMER_REQUESTS, ids=lambda request: request.api.name)
    @pytest.mark.parametrize(("protocols", "is_there"), [("classic,consumer", True), ("classic", False)])
    def test_apis_of_a_protocol_that_is_switched_off_do_not_exist(
        self,
        tmp_path: Path,
        request_: Request[Any],
        protocols: str,
        is_there: bool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        announced, answers = self.answers(tmp_path, protocols, request_)
        assert (request_.api.key in announced, len(answers)) == (is_there, int(is_there))
        assert (f"API {request_.api.key}, which this broker does not have" in caplog.text) != is_there
        assert HeartbeatRequest.api.key in announced

    def test_classic_cannot_be_switched_off(self) -> None:
        with pytest.raises(SettingError, match="expected classic or classic,consumer"):
            broker_settings({"zookeeper.connect": "z:1", "group.coordinator.rebalance.protocols": "consumer"})


def test_other_brokers_are_recognised_by_the_client_ids_of_their_channels(broker: WiredBroker) -> None:
    for peers in broker.cluster.all_peers:
        assert BROKER_CLIENT_ID.fullmatch(peers.client_id)


def test_a_handler_gets_its_fields_by_type() -> None:
    values: dict[str, Any] = dict(SETTINGS)
    parts = Parts()
    (handler,) = build_handlers([Asking], [parts], values)
    assert isinstance(handler, Asking)
    assert handler.identity is parts.identity
    assert handler.threads == Threads(10)
    assert handler.balance.current() == Balance(10)
    values["leader.imbalance.per.broker.percentage"] = 25
    assert handler.balance.current() == Balance(25)


def test_a_field_without_a_provider_is_named_in_the_error() -> None:
    with pytest.raises(WiringError, match=r"AskingForText\.rack: nothing provides .*str"):
        build_handlers([AskingForText], [Parts()], SETTINGS)


def test_a_type_provided_twice_is_named_in_the_error_with_its_handler() -> None:
    twice = r"Asking\.identity: .*BrokerIdentity.* by Parts\.identity, OtherParts\.identity"
    with pytest.raises(WiringError, match=twice):
        build_handlers([Asking], [Parts(), OtherParts()], SETTINGS)


def test_a_dynamic_setting_cannot_be_requested_as_a_fixed_value() -> None:
    @dataclass(eq=False)
    class Frozen(AskingForText):
        rack: Balance  # type: ignore[assignment]

    Frozen.__annotations__["rack"] = Balance
    with pytest.raises(TypeError, match="pass Live"):
        build_handlers([Frozen], [], SETTINGS)


def test_an_api_with_two_handlers_is_refused() -> None:
    with pytest.raises(ValueError, match="Heartbeat has two handlers"):
        Dispatcher(RepeatedLog(Clock())).add([AskingForText("a"), AskingForText("b")])
