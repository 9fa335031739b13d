"""Stock clients, Kafka's AclCommand and its AclAuthorizer share access control lists with our brokers."""

from __future__ import annotations

from typing import Any

import kafka
import pytest
from confluent_kafka import admin as confluent
from kafka import admin as stock

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    Admin,
    ResourcePattern,
)
from tests.cluster import Cluster
from tests.compat.apache_kafka import acl_command, class_path
from tests.integration.waiting import until

WAIT_S = 120
ENABLED = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ORDERS = AclBinding(
    ResourcePattern(AclResource.TOPIC, "orders"),
    AclEntry("User:anna", "*", AclOperation.DESCRIBE_CONFIGS, AclPermission.ALLOW),
)
PAYMENTS = AclBinding(
    ResourcePattern(AclResource.TRANSACTIONAL_ID, "pay é", AclPattern.PREFIXED),
    AclEntry("User:CN=bert, O=Example", "192.0.2.1", AclOperation.WRITE, AclPermission.DENY),
)


@pytest.fixture
def broker(cluster: Cluster) -> BackgroundBroker:
    """A broker that has an authorizer, without any list."""
    return cluster.start(1, ENABLED)[0]


def lists_of(broker: BackgroundBroker) -> set[AclBinding]:
    with Admin({"bootstrap.servers": broker.address}) as admin:
        return set(admin.describe_acls())


def test_confluent_kafka_creates_describes_and_deletes(broker: BackgroundBroker) -> None:
    admin = confluent.AdminClient({"bootstrap.servers": broker.address})
    wanted = [
        confluent.AclBinding(
            confluent.ResourceType.TOPIC, "orders", confluent.ResourcePatternType.LITERAL, "User:anna", "*",
            confluent.AclOperation.DESCRIBE_CONFIGS, confluent.AclPermissionType.ALLOW,
        ),
        confluent.AclBinding(
            confluent.ResourceType.TRANSACTIONAL_ID, "pay é", confluent.ResourcePatternType.PREFIXED,
            "User:CN=bert, O=Example", "192.0.2.1", confluent.AclOperation.WRITE,
            confluent.AclPermissionType.DENY,
        ),
    ]  # fmt: skip
    for created in admin.create_acls(wanted).values():
        assert created.result(WAIT_S) is None
    assert lists_of(broker) == {ORDERS, PAYMENTS}

    def selecting(kind: Any, name: str | None, pattern: Any) -> Any:
        any_operation, any_permission = confluent.AclOperation.ANY, confluent.AclPermissionType.ANY
        return confluent.AclBindingFilter(kind, name, pattern, None, None, any_operation, any_permission)

    any_type, any_pattern = confluent.ResourceType.ANY, confluent.ResourcePatternType.ANY
    found = admin.describe_acls(selecting(any_type, None, any_pattern)).result(WAIT_S)
    assert sorted(each.name for each in found) == ["orders", "pay é"]
    match = selecting(confluent.ResourceType.TRANSACTIONAL_ID, "pay é 7", confluent.ResourcePatternType.MATCH)
    ((_, deleted),) = admin.delete_acls([match]).items()
    assert [each.principal for each in deleted.result(WAIT_S)] == ["User:CN=bert, O=Example"]
    assert lists_of(broker) == {ORDERS}


def test_kafka_python_creates_describes_and_deletes(broker: BackgroundBroker) -> None:
    admin = kafka.KafkaAdminClient(
        bootstrap_servers=broker.address, bootstrap_timeout_ms=WAIT_S * 1000, request_timeout_ms=WAIT_S * 1000
    )
    wanted = [
        stock.ACL(
            each.entry.principal,
            each.entry.host,
            stock.ACLOperation(int(each.entry.operation)),
            stock.ACLPermissionType(int(each.entry.permission)),
            stock.ResourcePattern(
                stock.ResourceType(int(each.pattern.resource)),
                each.pattern.name,
                stock.ACLResourcePatternType(int(each.pattern.pattern)),
            ),
        )
        for each in (ORDERS, PAYMENTS)
    ]
    created = admin.create_acls(wanted)
    assert len(created["succeeded"]) == 2 and not created["failed"]
    assert lists_of(broker) == {ORDERS, PAYMENTS}
    everything = stock.ACLFilter(
        None, None, stock.ACLOperation.ANY, stock.ACLPermissionType.ANY,
        stock.ResourcePatternFilter(stock.ResourceType.ANY, None, stock.ACLResourcePatternType.ANY),
    )  # fmt: skip
    found, error = admin.describe_acls(everything)
    assert error is kafka.errors.NoError
    assert sorted(each.principal for each in found) == ["User:CN=bert, O=Example", "User:anna"]
    ((_, deleted, error),) = admin.delete_acls([everything])
    assert error is kafka.errors.NoError and len(deleted) == 2
    admin.close()
    assert lists_of(broker) == set()


def test_kafkas_acl_command_works_through_a_broker(broker: BackgroundBroker) -> None:
    class_path()  # Skip before anything is asked.
    through = ("--bootstrap-server", broker.address)
    added = acl_command(
        *through, "--add", "--allow-principal", "User:anna", "--producer", "--consumer",
        "--topic", "orders", "--group", "g", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    assert "Adding ACLs for resource" in added
    described = {each for each in lists_of(broker) if each.pattern.resource is AclResource.TOPIC}
    assert {each.entry.operation for each in described} == {
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE
    }  # fmt: skip
    listed = acl_command(*through, "--list", "--topic", "orders-1", "--resource-pattern-type", "match")
    assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=PREFIXED)" in listed
    assert "(principal=User:anna, host=*, operation=CREATE, permissionType=ALLOW)" in listed
    acl_command(
        *through, "--remove", "--force", "--topic", "orders", "--group", "g",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    assert lists_of(broker) == set()


def test_kafkas_authorizer_reads_our_lists_and_we_read_its(cluster: Cluster) -> None:
    """AclCommand without a broker runs Kafka's AclAuthorizer on the same ZooKeeper."""
    class_path()  # Skip before anything is started.
    (broker,) = cluster.start(1, ENABLED)
    on_zookeeper = ("--authorizer-properties", f"zookeeper.connect={cluster.zookeeper_connect}")
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_acls([ORDERS, PAYMENTS])
        listed = acl_command(*on_zookeeper, "--list")
        assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)" in listed
        assert "(principal=User:anna, host=*, operation=DESCRIBE_CONFIGS, permissionType=ALLOW)" in listed
        assert "resourceType=TRANSACTIONAL_ID, name=pay" in listed
        assert (
            "(principal=User:CN=bert, O=Example, host=192.0.2.1, operation=WRITE, permissionType=DENY)"
            in listed
        )

        acl_command(
            *on_zookeeper, "--add", "--deny-principal", "User:eve", "--operation", "Read",
            "--topic", "orders",
        )  # fmt: skip
        acl_command(
            *on_zookeeper, "--add", "--allow-principal", "User:eve", "--group", "g",
            "--operation", "Read", "--resource-pattern-type", "prefixed",
        )  # fmt: skip
        acl_command(
            *on_zookeeper, "--remove", "--force", "--topic", "orders", "--allow-principal",
            "User:anna", "--operation", "DescribeConfigs",
        )  # fmt: skip
        group = ResourcePattern(AclResource.GROUP, "g", AclPattern.PREFIXED)
        expected = {
            PAYMENTS,
            AclBinding(ORDERS.pattern, AclEntry("User:eve", "*", AclOperation.READ, AclPermission.DENY)),
            AclBinding(group, AclEntry("User:eve", "*", AclOperation.READ, AclPermission.ALLOW)),
        }
        until(lambda: set(admin.describe_acls()) == expected)
        assert len(admin.delete_acls([AclFilter()])) == 3
        assert "Current ACLs" not in acl_command(*on_zookeeper, "--list")
