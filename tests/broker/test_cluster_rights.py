"""Clients alter what concerns everybody only through the listeners that cluster.alter.listeners names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.handlers.alter_client_quotas import AlterClientQuotasHandler
from holdfast_log.broker.handlers.alter_configs import AlterConfigsHandler
from holdfast_log.broker.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from holdfast_log.broker.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from holdfast_log.broker.handlers.elect_leaders import ElectLeadersHandler
from holdfast_log.broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from holdfast_log.broker.requests.answers import ALTERED_TOGETHER, LongAnswers
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.configs import ResourceType
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from holdfast_log.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from holdfast_log.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from holdfast_log.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from holdfast_log.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast_log.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.broker.world import fired


class ListenerContext(RequestContext):
    """The context of a request that arrived through a listener."""

    __slots__ = ("_listener",)

    def __init__(self, listener: str | None) -> None:
        super().__init__(0, "", None)
        self._listener = listener

    @property
    def listener(self) -> str | None:
        return self._listener


def context_of(listener: str | None) -> RequestContext:
    return ListenerContext(listener)


REFUSED: list[tuple[Callable[..., Handler[Any, Any]], Request[Any]]] = [
    (AlterClientQuotasHandler, AlterClientQuotasRequest(entries=[], validate_only=True)),
    (AlterPartitionReassignmentsHandler, AlterPartitionReassignmentsRequest(timeout_ms=1, topics=[])),
]


def others_of(handler: Any) -> dict[str, Any]:
    """What a handler has for loggers, which these requests do not name."""
    return {"identity": None, "loggers": None} if handler is IncrementalAlterConfigsHandler else {}


def answers_of(handler: Any) -> dict[str, Any]:
    """Where a handler makes its answers, if it makes them in turns itself."""
    return {"answers": LongAnswers(Clock())} if handler is AlterClientQuotasHandler else {}


@pytest.mark.parametrize(("handler", "request_"), REFUSED)
def test_requests_that_concern_everybody_are_refused_on_other_listeners(handler: Any, request_: Any) -> None:
    kept_out = handler(cast(Any, None), ClusterRights(("admin",)), **answers_of(handler))
    with pytest.raises(BrokerError, match="clients of the listener PLAINTEXT may not") as refused:
        kept_out.handle(context_of("PLAINTEXT"), request_)
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_leaders_and_log_directories_are_refused_on_other_listeners_for_each_partition() -> None:
    nothing: Any = None
    rights, answers = ClusterRights(("admin",)), LongAnswers(Clock())
    named = [TopicPartitions(topic="t", partitions=[4, 7])]
    elected = fired(
        ElectLeadersHandler(nothing, rights, answers).handle(
            context_of("PLAINTEXT"),
            ElectLeadersRequest(election_type=0, topic_partitions=named, timeout_ms=1),
        )
    )
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    (topic,) = elected.replica_election_results
    assert [(row.partition_id, row.error_code) for row in topic.partition_result] == [
        (4, refused),
        (7, refused),
    ]
    wanted = AlterReplicaLogDir(path="/d", topics=[AlterReplicaLogDirTopic(name="t", partitions=[4])])
    chosen = fired(
        AlterReplicaLogDirsHandler(nothing, nothing, rights, answers).handle(
            context_of("PLAINTEXT"), AlterReplicaLogDirsRequest(dirs=[wanted])
        )
    )
    assert [row.error_code for row in chosen.results[0].partitions] == [refused]


@pytest.mark.parametrize("handler", [AlterConfigsHandler, IncrementalAlterConfigsHandler])
@pytest.mark.parametrize("name", ["", "1"])
def test_settings_of_brokers_are_altered_on_named_listeners_only_and_those_of_topics_on_all(
    handler: Any, name: str
) -> None:
    altered: list[tuple[int, str]] = []

    def alter(resource_type: int, resource_name: str, configs: Any, *, validate_only: bool) -> Any:
        altered.append((resource_type, resource_name))
        return succeed(None)

    changes = SimpleNamespace(alter=alter, replace=alter)
    is_incremental = handler is IncrementalAlterConfigsHandler
    resource_class: Any = IncrementalAlterConfigsResource if is_incremental else AlterConfigsResource
    request_class: Any = IncrementalAlterConfigsRequest if is_incremental else AlterConfigsRequest
    resources = [
        resource_class(resource_type=ResourceType.BROKER, resource_name=name, configs=[]),
        resource_class(resource_type=ResourceType.TOPIC, resource_name="t", configs=[]),
    ]
    rights = ClusterRights(("admin",))

    def codes(listener: str | None) -> list[int]:
        answers: list[Any] = []
        asked = request_class(resources=resources, validate_only=True)
        handler(changes=changes, rights=rights, answers=LongAnswers(Clock()), **others_of(handler)).handle(
            context_of(listener), asked
        ).addCallback(answers.append)
        return [response.error_code for response in answers[0].responses]

    assert codes("PLAINTEXT") == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NONE]
    assert altered == [(ResourceType.TOPIC, "t")]
    assert codes("ADMIN") == [ErrorCode.NONE, ErrorCode.NONE]
    assert codes(None) == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize("handler", [AlterConfigsHandler, IncrementalAlterConfigsHandler])
def test_a_resource_that_is_named_many_times_is_not_altered_at_all(handler: Any) -> None:
    altered: list[str] = []

    def alter(resource_type: int, name: str, configs: Any, *, validate_only: bool) -> Any:
        altered.append(name)
        return succeed(None)

    answers: list[Any] = []
    asked, altering, clock = altering_of(handler, alter, ["often"] * 400 + ["once"])
    altering.handle(context_of(None), asked).addCallback(answers.append)
    clock.advance(0)
    codes = [row.error_code for row in answers[0].responses]
    assert codes == [ErrorCode.INVALID_REQUEST] * 400 + [ErrorCode.NONE]
    assert altered == ["once"]


def test_without_a_named_listener_every_client_may_alter_the_cluster() -> None:
    assert ClusterRights().refusal(context_of("PLAINTEXT"), "alter quotas") is None


@pytest.mark.parametrize("handler", [AlterConfigsHandler, IncrementalAlterConfigsHandler])
def test_many_resources_are_altered_some_at_a_time_whether_or_not_one_is_named_twice(handler: Any) -> None:
    begun: list[str] = []
    waiting: list[Deferred[None]] = []

    def alter(resource_type: int, name: str, configs: Any, *, validate_only: bool) -> Any:
        begun.append(name)
        waiting.append(Deferred())
        return waiting[-1]

    names = [*(f"t{number}" for number in range(3 * ALTERED_TOGETHER)), "twice", "twice"]
    answered: list[Any] = []
    asked, altering, clock = altering_of(handler, alter, names)
    altering.handle(context_of(None), asked).addCallback(answered.append)
    most = 0
    while not answered:
        most = max(most, len(waiting))
        some, waiting = waiting, []
        for each in some:
            each.callback(None)
        clock.advance(0)
    assert most == ALTERED_TOGETHER
    assert begun == names[:-2]
    codes = [row.error_code for row in answered[0].responses]
    assert codes == [ErrorCode.NONE] * len(begun) + [ErrorCode.INVALID_REQUEST] * 2


def altering_of(handler: Any, alter: Any, names: Sequence[str]) -> tuple[Any, Any, Clock]:
    """A request to alter topics of these names, the handler that carries it out by `alter`, and its clock."""
    is_incremental = handler is IncrementalAlterConfigsHandler
    resource_class: Any = IncrementalAlterConfigsResource if is_incremental else AlterConfigsResource
    request_class: Any = IncrementalAlterConfigsRequest if is_incremental else AlterConfigsRequest
    resources = [
        resource_class(resource_type=ResourceType.TOPIC, resource_name=name, configs=[]) for name in names
    ]
    clock = Clock()
    changes = SimpleNamespace(alter=alter, replace=alter)
    altering = handler(
        changes=changes, rights=ClusterRights(), answers=LongAnswers(clock), **others_of(handler)
    )
    return request_class(resources=resources, validate_only=False), altering, clock
