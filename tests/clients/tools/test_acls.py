"""What the options of scripts/acls.sh name, as Kafka's kafka-acls.sh understands them."""

from __future__ import annotations

from typing import Any

import click
import pytest

from holdfast_log.clients.tools.acl_choice import AclChoice, exact_filters
from holdfast_log.protocol.acl_bindings import AclEntry, AclFilter, ResourcePattern
from holdfast_log.protocol.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)

ALICE, BOB = "User:alice", "User:bob"
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
TRANSACTION = AclResource.TRANSACTIONAL_ID
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CREATE = AclOperation.CREATE


def allowed(*operations: AclOperation, principal: str = ALICE) -> set[AclEntry]:
    return {AclEntry(principal, "*", operation, ALLOW) for operation in operations}


def added(**options: Any) -> dict[ResourcePattern, set[AclEntry]]:
    return {pattern: set(entries) for pattern, entries in AclChoice(**options).to_add().items()}


def test_principals_hosts_and_operations_are_combined() -> None:
    found = added(
        topic=("a", " b "),
        allow_principal=(ALICE, BOB),
        allow_host=("192.0.2.1", "192.0.2.2"),
        deny_principal=("User:*",),
        operation=("Read", "DESCRIBECONFIGS", "alter_configs"),
    )
    assert found.keys() == {ResourcePattern(TOPIC, "a"), ResourcePattern(TOPIC, "b")}
    entries = found[ResourcePattern(TOPIC, "b")]
    assert len(entries) == 2 * 2 * 3 + 3
    assert AclEntry(BOB, "192.0.2.2", AclOperation.ALTER_CONFIGS, ALLOW) in entries
    assert AclEntry("User:*", "*", AclOperation.DESCRIBE_CONFIGS, DENY) in entries


def test_without_an_operation_all_are_meant() -> None:
    found = added(cluster=True, group=("g",), allow_principal=(ALICE,))
    assert found == {
        ResourcePattern(GROUP, "g"): allowed(AclOperation.ALL),
        ResourcePattern(CLUSTER, CLUSTER_NAME): allowed(AclOperation.ALL),
    }


def test_a_producer_gets_what_it_needs() -> None:
    found = added(
        producer=True, topic=("t",), transactional_id=("x",), idempotent=True, allow_principal=(ALICE,)
    )
    assert found == {
        ResourcePattern(TOPIC, "t"): allowed(WRITE, DESCRIBE, CREATE),
        ResourcePattern(TRANSACTION, "x"): allowed(WRITE, DESCRIBE),
        ResourcePattern(CLUSTER, CLUSTER_NAME): allowed(AclOperation.IDEMPOTENT_WRITE),
    }


def test_a_consumer_gets_what_it_needs_with_prefixes_too() -> None:
    found = added(
        consumer=True, topic=("t",), group=("g",), allow_principal=(ALICE,), resource_pattern_type="prefixed"
    )
    assert found == {
        ResourcePattern(TOPIC, "t", AclPattern.PREFIXED): allowed(READ, DESCRIBE),
        ResourcePattern(GROUP, "g", AclPattern.PREFIXED): allowed(READ),
    }


def test_one_who_produces_and_consumes_gets_both() -> None:
    found = added(producer=True, consumer=True, topic=("t",), group=("g",), allow_principal=(ALICE,))
    assert found == {
        ResourcePattern(TOPIC, "t"): allowed(READ, WRITE, DESCRIBE, CREATE),
        ResourcePattern(GROUP, "g"): allowed(READ),
    }


def test_what_to_remove_is_named_or_everything_of_a_resource() -> None:
    choice = AclChoice(topic=("t",), resource_pattern_type="match")
    wanted = AclFilter(TOPIC, "t", AclPattern.MATCH)
    assert choice.to_remove() == {wanted: []}
    assert exact_filters(wanted, []) == [wanted]
    choice = AclChoice(topic=("t",), allow_principal=(ALICE,), operation=("Read",))
    ((wanted, entries),) = choice.to_remove().items()
    assert exact_filters(wanted, entries) == [
        AclFilter(TOPIC, "t", AclPattern.LITERAL, ALICE, "*", READ, ALLOW)
    ]


def test_what_to_list_is_named_or_everything() -> None:
    assert AclChoice().to_list() == [AclFilter()]
    choice = AclChoice(topic=("t",), cluster=True, resource_pattern_type="any")
    assert choice.to_list() == [
        AclFilter(TOPIC, "t", AclPattern.ANY),
        AclFilter(CLUSTER, CLUSTER_NAME, AclPattern.LITERAL),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allow_principal": (ALICE,)}, "at least one resource"),
        ({"topic": ("t",)}, "--add needs --allow-principal or --deny-principal"),
        ({"topic": ("t",), "allow_principal": ("alice",)}, "not of the form type:name"),
        ({"topic": ("t",), "allow_principal": (ALICE,), "operation": ("Fly",)}, "unknown operation 'Fly'"),
        ({"topic": ("t",), "allow_principal": (ALICE,), "operation": ("Any",)}, "unknown operation 'Any'"),
        (
            {"group": ("g",), "allow_principal": (ALICE,), "operation": ("Write",)},
            "the operations on a group are Read, Describe, Delete, DescribeConfigs, AlterConfigs, All",
        ),
        ({"topic": ("t",), "allow_host": ("h",)}, "a host goes with a principal"),
        ({"topic": ("t",), "allow_principal": (ALICE,), "deny_host": ("h",)}, "a host goes with a principal"),
        ({"topic": ("t",), "allow_principal": (ALICE,), "resource_pattern_type": "any"}, "--add needs --res"),
        ({"cluster": True, "resource_pattern_type": "prefixed"}, "only entries of --resource-pattern-type"),
        ({"producer": True, "allow_principal": (ALICE,)}, "--producer needs --topic"),
        ({"producer": True, "topic": ("t",), "operation": ("Read",)}, "--producer allows what it needs"),
        ({"consumer": True, "topic": ("t",), "deny_principal": (BOB,)}, "--consumer allows what it needs"),
        ({"consumer": True, "topic": ("t",)}, "--consumer needs --topic and --group"),
        ({"consumer": True, "topic": ("t",), "group": ("g",), "cluster": True}, "goes without --cluster"),
        ({"idempotent": True, "topic": ("t",)}, "--idempotent goes with --producer"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        AclChoice(**options).to_add()


@pytest.mark.parametrize("options", [{"producer": True}, {"consumer": True}, {"allow_principal": (ALICE,)}])
def test_a_list_takes_resources_only(options: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError, match="--list goes with resources"):
        AclChoice(topic=("t",), **options).to_list()
