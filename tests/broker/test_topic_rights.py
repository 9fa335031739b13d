"""Topics are created, grown and deleted by clients that may, one by one; the answers tell others nothing."""

from __future__ import annotations

import logging
import uuid

import pytest

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.handlers.create_partitions import CreatePartitionsHandler
from holdfast_log.broker.handlers.create_topics import CreateTopicsHandler
from holdfast_log.broker.handlers.delete_topics import DeleteTopicsHandler, TopicDeletionSettings
from holdfast_log.broker.requests import audit
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.acls import CLUSTER_NAME, AclOperation, AclResource
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from holdfast_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.test_administration import VIEW, Controller, answers, as_service
from tests.broker.world import fired
from tests.models.orders import partition_metadata, update_metadata
from tests.models.quotas import no_mutation_quotas
from tests.models.rules import JudgedContext, Rule, Rules

CREATE, DELETE, DESCRIBE = AclOperation.CREATE, AclOperation.DELETE, AclOperation.DESCRIBE
TOPIC, CLUSTER = AclResource.TOPIC, AclResource.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
KNOWN, ZERO = uuid.UUID(int=5), uuid.UUID(int=0)


def creation_of(*names: str, on_behalf_of: str | None = None) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    return CreateTopicsRequest(topics=topics, on_behalf_of=on_behalf_of)


def created(controller: Controller, rules: Rules, *names: str) -> dict[str, CreatableTopicResult]:
    handler = CreateTopicsHandler(as_service(controller), VIEW, no_mutation_quotas(), answers())
    answer = fired(handler.handle(JudgedContext(7, rules), creation_of(*names)))
    return {topic.name: topic for topic in answer.topics}


def test_topics_that_the_client_may_not_create_are_not_created() -> None:
    controller = Controller()
    rules = Rules({(CREATE, TOPIC), (CREATE, CLUSTER)}, {"closed", CLUSTER_NAME})
    answer = created(controller, rules, "open", "closed")
    assert {name: topic.error_code for name, topic in answer.items()} == {"open": 0, "closed": DENIED}
    assert [topic.name for topic in controller.created] == ["open"]


@pytest.mark.parametrize("right", [(CREATE, TOPIC), (CREATE, CLUSTER)])
def test_the_right_to_the_topic_or_to_the_cluster_will_do(right: Rule) -> None:
    controller = Controller()
    assert created(controller, Rules({right}), "t")["t"].error_code == ErrorCode.NONE
    assert [topic.name for topic in controller.created] == ["t"]


def test_settings_of_the_new_topic_are_for_those_who_may_describe_them() -> None:
    shown = created(Controller(), Rules(set()), "t")["t"]
    assert shown.configs
    hidden = created(Controller(), Rules({(AclOperation.DESCRIBE_CONFIGS, TOPIC)}), "t")["t"]
    assert (hidden.error_code, hidden.topic_config_error_code) == (ErrorCode.NONE, DENIED)
    assert (hidden.configs, hidden.num_partitions, hidden.replication_factor) == (None, -1, -1)


def test_the_audit_log_names_the_client_of_the_broker_that_asks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, audit.__name__)
    handler = CreateTopicsHandler(as_service(Controller()), VIEW, no_mutation_quotas(), answers())
    client = "User:alice, client 'app', at 192.0.2.7"
    handler.handle(RequestContext(7, "broker-2", None), creation_of("t", on_behalf_of=client))
    (record,) = caplog.records
    assert record.getMessage().startswith("Created topic t ")
    assert record.getMessage().endswith(f", by {client}")


def test_topics_that_the_client_may_not_alter_do_not_grow() -> None:
    controller = Controller()
    handler = CreatePartitionsHandler(as_service(controller), no_mutation_quotas(), answers())
    topics = [CreatePartitionsTopic(name=name, count=9, assignments=None) for name in ("open", "closed")]
    rules = Rules({(AclOperation.ALTER, TOPIC)}, {"closed"})
    answer = fired(
        handler.handle(
            JudgedContext(3, rules), CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=False)
        )
    )
    assert {each.name: each.error_code for each in answer.results} == {"open": 0, "closed": DENIED}
    assert [each.name for each in controller.grown] == ["open"]


def deleted(
    rules: Rules, *states: DeleteTopicState
) -> tuple[list[tuple[int, str | None, uuid.UUID]], list[str]]:
    """The error, name and id of each row, and the topics that the controller was asked to delete."""
    controller, metadata = Controller(), MetadataCache()
    metadata.update(update_metadata("t", KNOWN, [partition_metadata()]))
    handler = DeleteTopicsHandler(
        as_service(controller),
        metadata,
        TopicDeletionSettings(True),
        no_mutation_quotas(),
        answers(),
    )
    asked = DeleteTopicsRequest(topics=list(states), timeout_ms=1)
    answer = handler.handle(JudgedContext(6, rules), asked)
    rows = fired(answer).responses
    return [(row.error_code, row.name, row.topic_id) for row in rows], controller.deleted


BY_NAME = DeleteTopicState(name="t", topic_id=ZERO)
BY_ID = DeleteTopicState(name=None, topic_id=KNOWN)
MISSING = DeleteTopicState(name="none", topic_id=ZERO)


def test_a_client_that_may_not_describe_a_topic_learns_neither_its_name_nor_that_it_exists() -> None:
    rules = Rules({(DESCRIBE, TOPIC), (DELETE, TOPIC), (DELETE, CLUSTER)})
    rows, asked = deleted(rules, BY_NAME, BY_ID, MISSING)
    assert rows == [(DENIED, "t", ZERO), (DENIED, None, KNOWN), (DENIED, "none", ZERO)]
    assert asked == []


def test_a_client_that_may_describe_a_topic_but_not_delete_it_is_refused() -> None:
    rows, asked = deleted(Rules({(DELETE, TOPIC), (DELETE, CLUSTER)}), BY_NAME)
    assert rows == [(DENIED, "t", KNOWN)]
    assert asked == []


def test_the_right_to_delete_in_the_cluster_covers_all_topics() -> None:
    rows, asked = deleted(Rules({(DELETE, TOPIC), (DESCRIBE, TOPIC)}), BY_NAME)
    assert rows == [(ErrorCode.NONE, "t", KNOWN)]
    assert asked == ["t"]
