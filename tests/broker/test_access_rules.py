"""Every API, in every version, is judged as `access_rules` says, by a whole broker whose authorizer denies
everything, or one operation.

The requests are built from the declared messages. A new API needs a row in the table, and a client that lacks
the right must get the right's error and change nothing.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.network.admission import BrokerAdmission
from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.requests.access_rules import BROKERS, RULES, Denial, Rule
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.broker.requests.operations import OPERATIONS
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.broker.wiring.handlers import handler_types
from holdfast_log.broker.wiring.node import WiredBroker, build_broker
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.api import Api, Request
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.fields import Struct
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.fetch import FetchRequest, ReplicaState
from holdfast_log.protocol.messages.ownership import NO_PARTITION, PRODUCERS_GROUP
from tests.broker.world import World, fired
from tests.hostile.generator import Builder, Names, Variant, depth_of
from tests.hostile.generator import World as Known
from tests.models.instant_zookeeper import InstantZooKeeper
from tests.models.orders import broker_metadata, partition_metadata, update_metadata
from tests.models.rules import Rule as Right
from tests.models.rules import Rules
from tests.models.wires import FakeWire

TOPIC, GROUP = "t", "g"
CODES = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
RIGHTS: list[Right] = [
    *((operation, kind) for kind, operations in OPERATIONS.items() for operation in operations),
    (AclOperation.WRITE, AclResource.TRANSACTIONAL_ID),
    (AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID),
]
KINDS = {
    "AlterConfigs": (2, 4),
    "DescribeConfigs": (2, 4, 8),
    "IncrementalAlterConfigs": (2, 4, 8),
    "DescribeCluster": (1,),
    "FindCoordinator": (0, 1),
    "ListConfigResources": (2,),
    "Own": (1, 2),
    "ProducerAccess": (1,),
}
"""Values of the fields that name a kind of thing, for requests that reach their resources; else 0."""
WITHOUT_ERRORS = {("DescribeLogDirs", version) for version in range(3)}
"""Answers that have no place for an error: they list nothing, as Kafka's."""
IN_GROUPS = ("Own", "Renew", "Resume", "Release", "CheckToken", "ForceRelease", "AttachReader")
LAST_OF_CLIENTS = {"AddPartitionsToTxn": 3}
"""The last version that clients send, where later ones are for brokers."""
SERVED = sorted((each.request.api for each in handler_types()), key=lambda api: api.key)
CLIENTS = [api for api in SERVED if not api.internal]
LIMITS = ConnectionLimits(1 << 20, 1 << 20, 100)


@dataclass
class Broker:
    """A whole broker that leads a topic and coordinates groups, without a network."""

    rules: Rules
    wired: WiredBroker
    world: World
    zookeeper: InstantZooKeeper
    topic_id: uuid.UUID
    connections: int = 0

    def ask(self, request: Request[Any], version: int, *, is_broker: bool = False) -> Any:
        """The answer, on a connection of its own; None if there is none at once."""
        self.connections += 1
        wire = FakeWire(Address("192.0.2.7", 40_000))
        connection = ServerConnection(
            self.connections,
            "CLIENTS",
            wire.peer,
            self.wired.cluster.dispatcher.dispatch,
            LIMITS,
            self.world.clock,
            is_broker=is_broker,
        )
        connection.principal = "User:alice"
        connection.connected(wire)
        frame = bytearray(join_parts(encode_request(request, version, 7, "app"))[4:])
        connection.frames_received([memoryview(frame)])
        for _ in range(5):
            self.world.clock.advance(0)
        frames = list(wire.frames())
        connection.close("it has been asked")
        if not frames:
            return None
        (answer,) = frames
        assert struct.unpack_from(">i", answer) == (7,)
        return decode_response(type(request), version, answer)

    def codes(self, api: Api, version: int) -> set[int]:
        """The errors in the answers to all requests of the API that a test sends."""
        found: set[int] = set()
        for request in requests_of(api, version, self.topic_id):
            found |= set(errors_in(self.ask(request, version)))
        return found - {0}

    def state(self) -> Any:
        """What clients could have changed."""
        logs = {str(each): each.log.log_end_offset for each in self.wired.replication.replicas}
        return logs, dict(self.zookeeper.znodes), sorted(self.wired.cluster.metadata.topics)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Broker:
    rules = Rules(None)
    world = World(tmp_path_factory.mktemp("broker"))
    zookeeper = InstantZooKeeper()
    around = dataclasses.replace(world.surroundings(cast(Any, zookeeper)), authorizer=rules)
    settings = broker_settings({"zookeeper.connect": "z:1", "offsets.topic.num.partitions": "1"})
    admission = BrokerAdmission(frozenset(("INTERNAL",)), "INTERNAL", has_secret=False)
    identity = BrokerIdentity(1, "cluster", "INTERNAL")
    wired = build_broker(settings, around, world.logs, identity, admission, pytest.fail)
    wired.cluster.lease._held_until_s = math.inf
    for topic in (TOPIC, OFFSETS_TOPIC):
        request = world.leader_and_isr(topic, 0)
        fired(wired.replication.roles.apply_leader_and_isr(request))
        told = update_metadata(
            topic, world.topic_id(topic), [partition_metadata(replicas=(1,))], [broker_metadata(1, "CLIENTS")]
        )
        wired.cluster.metadata.update(told)
    return Broker(rules, wired, world, zookeeper, world.topic_id(TOPIC))


def requests_of(api: Api, version: int, topic_id: uuid.UUID) -> Iterator[Request[Any]]:
    """Requests of the API that name the topic and the group; those that may be about names, or in the group
    of exclusive producers, in these forms too."""
    known = Known(1, [TOPIC], [topic_id], [GROUP])
    depth = depth_of(Struct(api.request))
    for kind in KINDS.get(api.name, (0,)):
        variant = Variant("one", (1,) * depth, Names.KNOWN, kind)

        def build(variant: Variant = variant) -> Any:
            request = Builder(known, version, variant, 1.0, 1 << 20).struct(api.request, 0, ())
            if isinstance(request, FetchRequest) and request.replica_state is None:
                request.replica_state = ReplicaState()
            return request

        yield build()
        if api.name not in IN_GROUPS:
            continue
        named = build()
        for each in getattr(named, "resources", [named]):
            if hasattr(each, "partition"):
                each.partition = NO_PARTITION
        yield named
        if api.name in ("Renew", "Resume", "Release"):
            of_producers = build()
            of_producers.group = PRODUCERS_GROUP
            yield of_producers
    if api.name == "InitProducerId":
        yield dataclasses.replace(build(), transactional_id=None)
    if api.name == "InitProducerId" or (api.name == "Produce" and version >= 3):
        yield dataclasses.replace(build(), transactional_id="x")


def errors_in(answer: Any) -> Iterator[int]:
    """All error codes in a response, at any depth."""
    if isinstance(answer, list):
        for each in answer:
            yield from errors_in(each)
    elif dataclasses.is_dataclass(answer):
        for each in dataclasses.fields(answer):
            value = getattr(answer, each.name)
            if each.name.endswith("error_code"):
                yield value
            else:
                yield from errors_in(value)


_NOT_HERE = {int(ErrorCode.ILLEGAL_SASL_STATE)}
_NO_TOKENS = {int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)}
FOR_EVERYBODY = {
    "SaslHandshake": _NOT_HERE,
    "SaslAuthenticate": _NOT_HERE,
    "CreateDelegationToken": _NO_TOKENS,
    "RenewDelegationToken": _NO_TOKENS,
    "ExpireDelegationToken": _NO_TOKENS,
    "DescribeDelegationToken": _NO_TOKENS,
}
"""Errors that everybody gets at a listener without SASL, and of a broker without tokens, whatever the
rights."""


def refusing(api: Api) -> list[Rule]:
    return [rule for rule in RULES[api.name] if rule.denial in (Denial.REQUEST, Denial.EACH)]


def test_every_api_has_its_rules_and_only_internal_ones_those_of_brokers() -> None:
    assert {api.name for api in APIS.values()} == set(RULES)
    for api in APIS.values():
        if api.name != "AuthenticateBroker":
            assert (RULES[api.name] is BROKERS) == api.internal, api.name


@pytest.mark.parametrize("api", CLIENTS, ids=lambda api: api.name)
def test_a_client_that_may_do_nothing_is_refused_and_changes_nothing(broker: Broker, api: Api) -> None:
    expected = {int(CODES[rule.resource]) for rule in refusing(api)}
    broker.rules.denied = None
    before = broker.state()
    for version in api.versions:
        found = broker.codes(api, version) - FOR_EVERYBODY.get(api.name, set())
        if (api.name, version) in WITHOUT_ERRORS:
            assert not found
            continue
        assert bool(found) == bool(expected), f"version {version}"
        assert found <= expected, f"version {version}"
    assert broker.state() == before


@pytest.mark.parametrize("api", [api for api in SERVED if api.internal], ids=lambda api: api.name)
def test_an_internal_api_is_for_brokers_whatever_the_rules_are(broker: Broker, api: Api) -> None:
    if api.name == "AuthenticateBroker":
        return
    before = broker.state()
    for denied in (None, cast("set[Right]", set())):
        broker.rules.denied = denied
        for version in api.versions:
            (request,) = requests_of(api, version, broker.topic_id)
            answer = broker.ask(request, version)
            refused = {int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)}
            assert answer is None or set(errors_in(answer)) == refused
    assert broker.state() == before


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: f"{right[0].name} {right[1].name}")
def test_the_right_to_one_operation_is_asked_for_exactly_where_the_rules_say(
    broker: Broker, right: Right
) -> None:
    wrong: list[str] = []
    for api in CLIENTS:
        broker.rules.denied = {right}
        is_denied = any(
            (rule.operation, rule.resource) == right and rule.instead is None for rule in refusing(api)
        )
        version = api.max_version
        if right[0] is not AclOperation.CLUSTER_ACTION:
            version = LAST_OF_CLIENTS.get(api.name, version)
        found = broker.codes(api, version) & set(map(int, CODES.values()))
        expected = {int(CODES[right[1]])} if is_denied else set()
        if found != expected:
            wrong.append(f"{api.name}: {found} in place of {expected}")
    assert not wrong


@pytest.mark.parametrize(
    "name", [name for name, rules in RULES.items() if any(each.instead for each in rules)]
)
def test_either_of_two_rights_will_do(broker: Broker, name: str) -> None:
    """Both have to be denied before the client is refused, or sees less."""
    (api,) = [each for each in APIS.values() if each.name == name]
    for rule in refusing(api):
        if rule.instead is None:
            continue
        broker.rules.denied = {(rule.operation, rule.resource), rule.instead}
        requests = requests_of(api, api.max_version, broker.topic_id)
        if name == "Metadata":
            requests = missing_topic(requests)
        found: set[int] = set()
        for request in requests:
            found |= set(errors_in(broker.ask(request, api.max_version)))
        assert int(CODES[rule.resource]) in found
        for right in ((rule.operation, rule.resource), rule.instead):
            broker.rules.denied = {right}
            for request in requests_of(api, api.max_version, broker.topic_id):
                assert int(CODES[rule.resource]) not in set(errors_in(broker.ask(request, api.max_version)))


def missing_topic(requests: Iterator[Any]) -> Iterator[Any]:
    for request in requests:
        for topic in request.topics:
            topic.name = "missing"
        yield request


def test_brokers_are_not_judged(broker: Broker) -> None:
    broker.rules.denied = None
    broker.rules.asked.clear()
    (request,) = requests_of(APIS[3], 12, broker.topic_id)
    assert set(errors_in(broker.ask(request, 12, is_broker=True))) == {0}
    assert broker.rules.asked == []


def test_without_an_authorizer_nobody_is_judged(tmp_path: Path) -> None:
    context = RequestContext(0, "", None)
    assert context.may(AclOperation.ALTER, AclResource.CLUSTER)
    assert World(tmp_path).dispatcher.rights is None


def rows_of_rules() -> list[str]:
    """The rules as the table of docs/access-rules.md has them."""
    rows = []
    for name, rules in RULES.items():
        if rules is BROKERS:
            continue
        if not rules:
            rows.append(f"| {name} | none | |")
        for rule in rules:
            right = f"{rule.operation.name} {rule.resource.name}"
            if rule.instead is not None:
                right += f", or {rule.instead[0].name} {rule.instead[1].name}"
            when = f", {rule.when}" if rule.when else ""
            rows.append(f"| {name} | {right}{when} | {rule.denial.value} |")
    return rows


def test_the_page_for_administrators_has_the_rules() -> None:
    page = (Path(__file__).parents[2] / "docs" / "access-rules.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| API")]
    assert [row for row in rows_of_rules() if row not in table] == []
