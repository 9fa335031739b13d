"""SCRAM credentials on ZooKeeper: altered beside quotas, described without keys, within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.handlers.alter_client_quotas import AlterClientQuotasHandler
from holdfast_log.broker.handlers.alter_user_scram_credentials import AlterUserScramCredentialsHandler
from holdfast_log.broker.handlers.describe_user_scram_credentials import DescribeUserScramCredentialsHandler
from holdfast_log.broker.quotas.store import QuotaStore
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.security.sasl.users import ScramUsers
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.znodes.layout import PERSISTENT_PATHS
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    AlteredQuota,
    OpData,
)
from holdfast_log.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from holdfast_log.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from holdfast_log.protocol.sasl.scram import ScramMechanism
from tests.models.instant_zookeeper import InstantZooKeeper

SHA_256, SHA_512 = ScramMechanism
USERS_MAX = 3


class World:
    """A broker's handlers of credentials and quotas, on ZooKeeper."""

    def __init__(self) -> None:
        self.zookeeper = InstantZooKeeper()
        for path in PERSISTENT_PATHS:
            parts = path.split("/")
            for count in range(2, len(parts) + 1):
                self.zookeeper.znodes.setdefault("/".join(parts[:count]), (b"", 0))
        dynamic = DynamicConfigs(self.zookeeper, Clock())
        self.users = ScramUsers(dynamic, USERS_MAX)
        dynamic.add_listener(self.users.configs_changed)
        store = QuotaStore(dynamic, 1)
        dynamic.add_listener(store.configs_changed)
        self.clock = Clock()
        self.answers = LongAnswers(self.clock)
        self._dispatcher = Dispatcher(RepeatedLog(Clock()))
        self._dispatcher.add(
            [
                AlterUserScramCredentialsHandler(self.users, ClusterRights(), LongAnswers(Clock())),
                DescribeUserScramCredentialsHandler(self.users, ClusterRights(), self.answers),
                AlterClientQuotasHandler(store, ClusterRights(), LongAnswers(Clock())),
            ]
        )

    def ask(self, request: Request[Any]) -> Any:
        answer, _ = self.answer_and_turns(request)
        return answer

    def answer_and_turns(self, request: Request[Any]) -> tuple[Any, int]:
        """The answer, and in how many further turns of the reactor it was made."""
        answers: list[Any] = []
        self._dispatcher.call_local(request).addCallback(answers.append)
        turns = 0
        while not answers:
            (call,) = self.clock.calls
            self.clock.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)
            turns += 1
        (answer,) = answers
        return answer, turns

    def alter(self, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
        """The error codes by user."""
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[])
        for change in changes:
            chosen: Any = (
                request.upsertions if isinstance(change, ScramCredentialUpsertion) else request.deletions
            )
            chosen.append(change)
        return {each.user: each.error_code for each in self.ask(request).results}

    def described(self, *names: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)
        return {
            each.user: (
                each.error_code,
                [(info.mechanism, info.iterations) for info in each.credential_infos],
            )
            for each in self.ask(request).results
        }

    def limit(self, user: str) -> int:
        quota = AlteredQuota(
            entity=[AlteredEntity(entity_type="user", entity_name=user)],
            ops=[OpData(key="producer_byte_rate", value=5.0, remove=False)],
        )
        answer = self.ask(AlterClientQuotasRequest(entries=[quota], validate_only=False))
        return int(answer.entries[0].error_code)

    def config(self, name: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.zookeeper.znodes[f"/config/users/{name}"][0])["config"]
        return found


def upsertion(user: str, mechanism: int = SHA_256, **fields: Any) -> ScramCredentialUpsertion:
    size = 64 if mechanism == SHA_512 else 32
    given = {"iterations": 4096, "salt": b"salt", "salted_password": b"s" * size, **fields}
    return ScramCredentialUpsertion(name=user, mechanism=mechanism, **given)


def deletion(user: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


@pytest.fixture
def world() -> World:
    return World()


def test_a_credential_is_set_described_and_removed(world: World) -> None:
    assert world.alter(upsertion("a b"), upsertion("a b", SHA_512, iterations=8192)) == {"a b": 0}
    assert world.described() == world.described("a b") == {"a b": (0, [(1, 4096), (2, 8192)])}
    assert sorted(world.config("a%20b")) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert world.users.find(SHA_256, "a b") is not None
    assert world.alter(deletion("a b")) == {"a b": 0}
    assert world.described() == {"a b": (0, [(2, 8192)])}
    assert world.users.find(SHA_256, "a b") is None


@pytest.mark.parametrize(("count", "turns_min"), [(3, 0), (1_000, 20)])
def test_credentials_of_many_users_are_described_in_turns(world: World, count: int, turns_min: int) -> None:
    names = [f"user-{number}" for number in range(count)]
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    answer, turns = world.answer_and_turns(request)
    assert [each.user for each in answer.results] == names
    assert {each.error_code for each in answer.results} == {ErrorCode.RESOURCE_NOT_FOUND}
    assert turns >= turns_min and (turns_min or not turns)


def test_credentials_and_quotas_of_a_user_stand_side_by_side(world: World) -> None:
    assert world.limit("anna") == 0 and world.alter(upsertion("anna")) == {"anna": 0}
    assert world.limit("anna") == 0
    assert sorted(world.config("anna")) == ["SCRAM-SHA-256", "producer_byte_rate"]
    assert world.alter(deletion("anna")) == {"anna": 0}
    assert world.config("anna") == {"producer_byte_rate": "5"}


def test_a_user_with_a_credential_alone_takes_no_place_of_a_quota(world: World) -> None:
    world.alter(upsertion("anna"), upsertion("bert"))
    assert world.limit("carl") == 0
    assert world.limit("dora") == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion("u", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", salt=b"x" * 257), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", salted_password=b"x" * 31), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", SHA_512, salted_password=b"x" * 32), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(".."), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u" * 256), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion("u"), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_a_change_that_is_not_allowed_changes_nothing(
    world: World, change: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode
) -> None:
    before = dict(world.zookeeper.znodes)
    assert world.alter(change, upsertion("other")) == {change.name: code, "other": 0}
    changed = {path for path, found in world.zookeeper.znodes.items() if before.get(path) != found}
    assert {path for path in changed if path.startswith("/config/users")} == {"/config/users/other"}


def test_all_changes_of_a_user_are_made_or_none(world: World) -> None:
    world.alter(upsertion("u"))
    codes = world.alter(upsertion("u", SHA_512), deletion("u", SHA_512))
    assert codes == {"u": ErrorCode.DUPLICATE_RESOURCE}
    assert world.alter(upsertion("u", SHA_512, iterations=1), deletion("u")) == {
        "u": ErrorCode.UNACCEPTABLE_CREDENTIAL
    }
    assert world.described() == {"u": (0, [(1, 4096)])}


def test_the_number_of_users_is_bounded(world: World) -> None:
    for user in ("a", "b", "c"):
        assert world.alter(upsertion(user)) == {user: 0}
    assert world.alter(upsertion("d")) == {"d": ErrorCode.POLICY_VIOLATION}
    assert world.alter(upsertion("a", SHA_512)) == {"a": 0}


def test_users_without_a_credential_are_named(world: World) -> None:
    world.limit("anna")
    world.alter(upsertion("bert"))
    assert world.described() == {"bert": (0, [(1, 4096)])}
    assert world.described("anna", "bert", "bert") == {
        "anna": (ErrorCode.RESOURCE_NOT_FOUND, []),
        "bert": (ErrorCode.DUPLICATE_RESOURCE, []),
    }
