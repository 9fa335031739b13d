"""Long requests that change the cluster are checked and answered in turns of the reactor.

The work of a turn is counted in calls, of Python's functions and of compiled ones, because the time depends
on what else the machine does.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.handlers.add_partitions_to_txn import AddPartitionsToTxnHandler
from holdfast_log.broker.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from holdfast_log.broker.handlers.alter_user_scram_credentials import AlterUserScramCredentialsHandler
from holdfast_log.broker.handlers.create_acls import CreateAclsHandler
from holdfast_log.broker.handlers.create_partitions import CreatePartitionsHandler
from holdfast_log.broker.handlers.create_topics import CreateTopicsHandler
from holdfast_log.broker.handlers.delete_topics import DeleteTopicsHandler, TopicDeletionSettings
from holdfast_log.broker.handlers.describe_owners import DescribeOwnersHandler
from holdfast_log.broker.handlers.elect_leaders import ElectLeadersHandler
from holdfast_log.broker.handlers.list_partition_reassignments import ListPartitionReassignmentsHandler
from holdfast_log.broker.handlers.update_features import UpdateFeaturesHandler
from holdfast_log.broker.log.directory_choices import DirectoryChoices
from holdfast_log.broker.requests import answers
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.broker.security.administration import AclAdministration
from holdfast_log.broker.transactions.settings import TransactionVersionSetting
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.transactions.effects import PartitionsAnswer
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from holdfast_log.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from holdfast_log.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from holdfast_log.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from holdfast_log.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast_log.protocol.messages.delete_topics import DeleteTopicsRequest
from holdfast_log.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast_log.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from holdfast_log.protocol.messages.ownership_sight import DescribeOwnersRequest, ResourceName
from holdfast_log.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.test_administration import FREE, VIEW, Controller, as_service
from tests.hostile.test_decoding_work import calls_of

ROWS = 2_000
NUMBERS = 16_000
CALLS_MAX = 15_000
"""In one turn. A call and what follows it takes 0.2 µs at most: these take 3 ms."""
_MANY = 1 << 60

RIGHTS = ClusterRights()
NAMES = [f"t{number}" for number in range(ROWS)]


class Cluster(Controller):
    """A controller that has done what it is asked for, and moves many partitions."""

    def elect_leaders(self, named: Any, timeout_ms: int, *, unclean: bool) -> Deferred[Any]:
        return succeed(dict.fromkeys(named, ErrorCode.ELECTION_NOT_NEEDED))

    def list_reassignments(self, timeout_ms: int) -> Deferred[Any]:
        return succeed({("t", number): ReplicaAssignment((1, 2), (2,), (1,)) for number in range(ROWS)})


class Users:
    """Users who have no credentials."""

    def alter(self, user: str, changes: Any) -> Deferred[BrokerError | None]:
        return succeed(None)


def created(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in NAMES
    ]
    handler = CreateTopicsHandler(as_service(controller), VIEW, FREE, turns)
    return handler.handle(context(), CreateTopicsRequest(topics=topics))


def deleted(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    settings = TopicDeletionSettings(True)
    handler = DeleteTopicsHandler(as_service(controller), MetadataCache(), settings, FREE, turns)
    return handler.handle(context(), DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1))


def grown(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in NAMES]
    asked = CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=False)
    return CreatePartitionsHandler(as_service(controller), FREE, turns).handle(context(), asked)


def elected(controller: Any, turns: LongAnswers, election_type: int = 0) -> Deferred[Any]:
    named = [TopicPartitions(topic="t", partitions=list(range(NUMBERS)))]
    asked = ElectLeadersRequest(election_type=election_type, topic_partitions=named, timeout_ms=1)
    return ElectLeadersHandler(as_service(controller), RIGHTS, turns).handle(context(), asked)


def elected_by_an_unknown_rule(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    return elected(controller, turns, election_type=7)


def chosen(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    directory: Any = SimpleNamespace(path="/d", failure=None, logs={})
    logs: Any = SimpleNamespace(
        directories=[directory], find=lambda partition: None, choices=DirectoryChoices()
    )
    moves: Any = None
    named = [AlterReplicaLogDirTopic(name="t", partitions=list(range(NUMBERS)))]
    asked = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/d", topics=named)])
    return AlterReplicaLogDirsHandler(logs, moves, RIGHTS, turns).handle(context(), asked)


def listed(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    handler = ListPartitionReassignmentsHandler(as_service(controller), turns)
    return handler.handle(context(), ListPartitionReassignmentsRequest(topics=None))


def credentials(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    users: Any = Users()
    asked = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in NAMES[: ROWS // 2]],
        upsertions=[upsertion(name) for name in NAMES[ROWS // 2 :]],
    )
    return AlterUserScramCredentialsHandler(users, RIGHTS, turns).handle(context(), asked)


def credentials_of_one(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    users: Any = Users()
    asked = AlterUserScramCredentialsRequest(
        deletions=[], upsertions=[upsertion("alice") for _ in range(ROWS)]
    )
    return AlterUserScramCredentialsHandler(users, RIGHTS, turns).handle(context(), asked)


def upsertion(name: str) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
    )


def entries(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    wanted = [
        AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=3,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
        for name in NAMES
    ]
    handler = CreateAclsHandler(AclAdministration(None, 1), turns, RIGHTS)
    return handler.handle(context(), CreateAclsRequest(creations=wanted))


def features(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    handler = UpdateFeaturesHandler(RIGHTS, MetadataCache(), TransactionVersionSetting(2), turns)
    updates = [FeatureUpdateKey(feature=name, max_version_level=1) for name in NAMES]
    return handler.handle(context(), UpdateFeaturesRequest(feature_updates=updates))


def owners(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    decided = SimpleNamespace(read_names=lambda group: succeed(None))
    ownership: Any = SimpleNamespace(decided=decided, resources=list)
    asked = DescribeOwnersRequest(
        groups=NAMES, resources=[ResourceName(name=f"n{i}", partition=-1) for i in range(NUMBERS)]
    )
    return DescribeOwnersHandler(ownership, turns).handle(context(), asked)


def in_transaction(topics: list[AddPartitionsToTxnTopic], turns: LongAnswers) -> Deferred[Any]:
    transactions: Any = SimpleNamespace(ask=lambda name, event: succeed(PartitionsAnswer(ErrorCode.NONE)))
    metadata: Any = SimpleNamespace(partition=lambda topic, index: index or None)
    asked = AddPartitionsToTxnRequest(
        transactions=[],
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    return AddPartitionsToTxnHandler(transactions, metadata, turns).handle(RequestContext(3, "", None), asked)


def partitions_in_transaction(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    topic = AddPartitionsToTxnTopic(name="t", partitions=list(range(1, NUMBERS)))
    return in_transaction([topic], turns)


def unknown_in_transaction(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    topic = AddPartitionsToTxnTopic(name="t", partitions=list(range(NUMBERS)))
    return in_transaction([topic], turns)


def topics_in_transaction(controller: Any, turns: LongAnswers) -> Deferred[Any]:
    return in_transaction([AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in NAMES], turns)


CHANGES: list[Callable[[Any, LongAnswers], Deferred[Any]]] = [
    created, deleted, grown, elected, elected_by_an_unknown_rule, chosen, listed, credentials,
    credentials_of_one, entries, features, owners, partitions_in_transaction, unknown_in_transaction,
    topics_in_transaction,
]  # fmt: skip


def context() -> RequestContext:
    return RequestContext(1, "", None)


def calls_by_turn(change: Callable[[Any, LongAnswers], Deferred[Any]], controller: Any) -> list[int]:
    """How many calls each turn makes until the change is answered."""
    clock = Clock()
    turns = LongAnswers(clock)
    answered: list[Any] = []
    made = [calls_of(lambda: change(controller, turns).addBoth(answered.append))]
    while not answered:
        due = list(clock.calls)  # Not those that they ask for.
        assert due, "nothing goes on"
        for call in due:
            clock.calls.remove(call)
            made.append(calls_of(lambda call=call: call.func(*call.args, **call.kw)))  # type: ignore[misc]
    return made


def longest_turn(change: Callable[[Any, LongAnswers], Deferred[Any]], controller: Any) -> int:
    # The request itself is made in the first turn, and is decoded before.
    return max(calls_by_turn(change, controller)[1:], default=_MANY)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_active", [True, False], ids=["controller here", "controller elsewhere"])
def test_long_requests_are_handled_in_turns(change: Any, is_active: bool) -> None:
    assert longest_turn(change, Cluster(is_active=is_active)) <= CALLS_MAX


@pytest.mark.parametrize("change", CHANGES)
def test_one_that_is_handled_in_one_turn_is_missed(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "TURN_BYTES", _MANY)
    assert longest_turn(change, Cluster()) > CALLS_MAX
