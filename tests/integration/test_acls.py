"""Access control lists over the network, by our client and script: made at one broker, in force at all."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast_log.clients.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    Admin,
    NewTopic,
    ResourcePattern,
)
from holdfast_log.protocol.errors import AuthorizationError, BrokerError, ErrorCode, InvalidRequestError
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster import BackgroundBroker, Cluster
from tests.integration.clients import produce_error
from tests.integration.programs import run_module
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until

ENABLED = {"authorizer.class.name": "acls", "super.users": "User:ANONYMOUS"}
ORDERS = AclBinding(
    ResourcePattern(AclResource.TOPIC, "orders"),
    AclEntry("User:anna", "*", AclOperation.READ, AclPermission.ALLOW),
)
PAYMENTS = AclBinding(
    ResourcePattern(AclResource.GROUP, "pay-", AclPattern.PREFIXED),
    AclEntry("User:CN=bert, O=Example", "192.0.2.1", AclOperation.ALL, AclPermission.DENY),
)


def acls(
    broker: Cluster | BackgroundBroker, *arguments: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    bootstrap = broker.bootstrap if isinstance(broker, Cluster) else broker.address
    return run_module(
        "holdfast_log.clients.tools.acls", "--bootstrap-server", bootstrap, *arguments, text=text
    )


def admin_of(broker: BackgroundBroker) -> Admin:
    return Admin({"bootstrap.servers": broker.address})


@pytest.fixture(scope="module")
def pair(cluster_of_module: Cluster) -> list[BackgroundBroker]:
    """Two brokers that have an authorizer, without any list."""
    return cluster_of_module.start(2, ENABLED)


def test_what_is_made_through_one_broker_is_in_force_at_the_other_and_survives_both(cluster: Cluster) -> None:
    one, two = cluster.start(2, ENABLED)
    with admin_of(one) as here, admin_of(two) as there:
        here.create_acls([ORDERS, PAYMENTS])
        assert here.describe_acls() == [ORDERS, PAYMENTS], "in force where it was made, at once"
        until(lambda: there.describe_acls() == [ORDERS, PAYMENTS])
        assert there.describe_acls(AclFilter(AclResource.GROUP, "pay-roll", AclPattern.MATCH)) == [PAYMENTS]
        assert there.delete_acls([AclFilter.of(ORDERS), AclFilter.of(ORDERS)]) == [ORDERS]
        until(lambda: here.describe_acls() == [PAYMENTS])
    for broker in (one, two):
        broker.stop()
    cluster.make_whole()
    with admin_of(one) as here:
        assert here.describe_acls() == [PAYMENTS]


def test_a_rule_made_through_one_broker_is_in_force_at_the_other(cluster: Cluster) -> None:
    """Clients are super users of the first broker only: at the second they may do what the lists allow."""
    one, two = cluster.add(ENABLED), cluster.add({"authorizer.class.name": "acls"})
    cluster.make_whole()
    client = {"bootstrap.servers": two.address}
    listing = AclBinding(
        ResourcePattern(AclResource.CLUSTER, "kafka-cluster"),
        AclEntry("User:ANONYMOUS", "127.0.0.1", AclOperation.DESCRIBE, AclPermission.ALLOW),
    )
    altering = replace(listing, entry=replace(listing.entry, operation=AclOperation.ALTER))
    with admin_of(one) as here, Admin(client) as there:

        def may(call: Callable[[], object]) -> bool:
            try:
                call()
            except AuthorizationError as error:
                assert error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                return False
            return True

        assert not may(there.describe_acls) and not may(lambda: there.create_acls([ORDERS]))
        assert not may(lambda: there.delete_acls([AclFilter()])) and here.describe_acls() == []
        here.create_acls([listing])
        until(lambda: may(there.describe_acls))
        assert not may(lambda: there.create_acls([ORDERS]))
        here.create_acls([altering])
        until(lambda: may(lambda: there.create_acls([ORDERS])))
        here.delete_acls([AclFilter(AclResource.CLUSTER)])
        until(lambda: not may(there.describe_acls))
        assert not may(lambda: there.create_acls([PAYMENTS]))
        until(lambda: here.describe_acls() == [ORDERS])


def test_a_stock_client_may_write_what_a_prefix_allows_and_no_longer_once_it_is_denied(
    cluster: Cluster,
) -> None:
    """Clients are super users of the first broker only, which creates the topics: it is the controller."""
    (one,) = cluster.start(1, ENABLED)
    two = cluster.add({"authorizer.class.name": "acls"})
    cluster.make_whole()
    with admin_of(one) as admin:
        admin.create_topics(
            [NewTopic(name, 1, 1, assignment={0: [two.broker_id]}) for name in ("orders-1", "secret")]
        )
        writing = AclBinding(
            ResourcePattern(AclResource.TOPIC, "orders-", AclPattern.PREFIXED),
            AclEntry("User:*", "*", AclOperation.WRITE, AclPermission.ALLOW),
        )
        denial = AclBinding(
            ResourcePattern(AclResource.TOPIC, "orders-1"),
            AclEntry("User:ANONYMOUS", "127.0.0.1", AclOperation.ALL, AclPermission.DENY),
        )

        def refusal(topic: str) -> int | None:
            return produce_error(two.address, topic, **{"allow.auto.create.topics": False})

        assert refusal("orders-1") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        admin.create_acls([writing])
        until(lambda: refusal("orders-1") is None)
        assert refusal("secret") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        # Asked at the second broker itself: librdkafka may ask the first one for metadata.
        names = [MetadataRequestTopic(name=name) for name in ("secret", "no-such")]
        with RawSocket(two.port) as stranger:
            described = stranger.call(MetadataRequest(topics=names, allow_auto_topic_creation=False)).topics
        assert [topic.error_code for topic in described] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
        admin.create_acls([denial])
        until(lambda: refusal("orders-1") == ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_refused_entries_are_named_and_the_others_are_made(pair: list[BackgroundBroker]) -> None:
    wrong = AclBinding(ResourcePattern(AclResource.CLUSTER, "mine"), ORDERS.entry)
    with admin_of(pair[0]) as admin:
        with pytest.raises(
            InvalidRequestError, match=r"CLUSTER LITERAL:mine .*: the only name of a cluster is"
        ):
            admin.create_acls([wrong, ORDERS])
        assert admin.describe_acls() == [ORDERS]
        assert admin.delete_acls([AclFilter()]) == [ORDERS]


@pytest.mark.parametrize("wrong", [ORDERS.entry, AclBinding(ORDERS.entry, ORDERS.pattern), "orders"])  # type: ignore[arg-type]
def test_what_is_no_entry_is_refused_before_it_is_sent(pair: list[BackgroundBroker], wrong: object) -> None:
    with admin_of(pair[0]) as admin, pytest.raises(TypeError, match="AclBinding"):
        admin.create_acls([wrong])  # type: ignore[list-item]


def test_the_script_adds_lists_and_removes(pair: list[BackgroundBroker]) -> None:
    one, _ = pair
    added = acls(one, "--add", "--allow-principal", "User:anna", "--producer", "--topic", "orders")
    assert added.returncode == 0, added.stderr
    assert "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, " in added.stdout
    added = acls(
        one, "--add", "--allow-principal", "User:bert", "--allow-host", "192.0.2.1", "--consumer",
        "--topic", "ord", "--group", "g", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    assert added.returncode == 0, added.stderr
    added = acls(one, "--add", "--cluster", "--deny-principal", "User:*", "--operation", "Alter")
    assert added.returncode == 0, added.stderr

    shown = acls(one, "--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert shown.stdout == (
        "Current ACLs for resource "
        "`ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`: \n"
        "\t(principal=User:anna, host=*, operation=WRITE, permissionType=ALLOW)\n"
        "\t(principal=User:anna, host=*, operation=CREATE, permissionType=ALLOW)\n"
        "\t(principal=User:anna, host=*, operation=DESCRIBE, permissionType=ALLOW)\n"
        "\n"
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)`: \n"
        "\t(principal=User:bert, host=192.0.2.1, operation=READ, permissionType=ALLOW)\n"
        "\t(principal=User:bert, host=192.0.2.1, operation=DESCRIBE, permissionType=ALLOW)\n"
        "\n"
    )
    listed = json.loads(acls(one, "--list", "--principal", "User:*", "--json").stdout)
    assert listed == [
        {
            "resourceType": "CLUSTER", "name": "kafka-cluster", "patternType": "LITERAL",
            "principal": "User:*", "host": "*", "operation": "ALTER", "permissionType": "DENY",
        }
    ]  # fmt: skip

    kept = acls(one, "--remove", "--topic", "orders", text="n\n")
    assert kept.returncode == 0 and "Removed" not in kept.stdout
    removed = acls(
        one, "--remove", "--topic", "orders", "--allow-principal", "User:anna", "--operation", "Write",
        text="y\n",
    )  # fmt: skip
    assert removed.returncode == 0 and "Removed 1 entries of TOPIC LITERAL:orders" in removed.stdout
    for resource in (("--topic", "orders"), ("--cluster",), ("--group", "g"), ("--topic", "ord")):
        removed = acls(one, "--remove", *resource, "--force", "--resource-pattern-type", "any")
        assert removed.returncode == 0, removed.stderr
    assert acls(one, "--list").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--topic", "t"), "one of --add, --remove, --list is needed"),
        (("--add", "--topic", "t"), "--add needs --allow-principal or --deny-principal"),
        (("--add", "--topic", "t", "--json"), "--json and --principal go with --list"),
        (("--list", "--principal", "anna"), "not of the form type:name"),
    ],
)
def test_wrong_usage_is_explained(arguments: tuple[str, ...], text: str) -> None:
    done = run_module("holdfast_log.clients.tools.acls", "--bootstrap-server", "localhost:1", *arguments)
    assert done.returncode == 2 and text in done.stderr


def test_a_broker_without_an_authorizer_says_so(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    with admin_of(broker) as admin:
        for call in (
            lambda: admin.create_acls([ORDERS]),
            admin.describe_acls,
            lambda: admin.delete_acls([AclFilter()]),
        ):
            with pytest.raises(BrokerError, match=r"set authorizer\.class\.name") as refused:
                call()
            assert refused.value.code is ErrorCode.SECURITY_DISABLED
    listed = acls(broker, "--list")
    assert listed.returncode == 1 and "this broker has no authorizer" in listed.stderr


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"authorizer.class.name": "com.example.Mine"},
            "authorizer.class.name='com.example.Mine' is not allowed",
        ),
        (
            {"super.users": "root"},
            "super.users='root' is not allowed: expected principals such as User:admin",
        ),
    ],
)
def test_a_broker_does_not_start_with_an_authorizer_that_does_not_exist(
    cluster: Cluster, properties: dict[str, str], message: str
) -> None:
    broker = cluster.add(properties)
    broker.start()
    until(lambda: not broker.running)
    assert message in broker.log
