"""The znodes of access control lists are those of Kafka's AclAuthorizer."""

from __future__ import annotations

import json

import pytest

from holdfast_log.coordinator.znodes.acls import (
    ACL_FOLDERS,
    acl_change_prefix,
    acl_path,
    decode_acl_change,
    decode_acls,
    encode_acl_change,
    encode_acls,
    is_acl_name,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.protocol.acl_bindings import AclEntry, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource

LITERAL = ResourcePattern(AclResource.TRANSACTIONAL_ID, "tx:1")
PREFIXED = ResourcePattern(AclResource.DELEGATION_TOKEN, "é", AclPattern.PREFIXED)
ENTRIES = frozenset(
    {
        AclEntry("User:alice", "*", AclOperation.DESCRIBE_CONFIGS, AclPermission.ALLOW),
        AclEntry("User:bob", "192.0.2.1", AclOperation.ALL, AclPermission.DENY),
    }
)
KAFKAS_JSON = (
    '{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"DescribeConfigs",'
    '"host":"*"},{"principal":"User:bob","permissionType":"Deny","operation":"All","host":"192.0.2.1"}]}'
)


def test_entries_are_written_as_kafka_writes_them() -> None:
    assert json.loads(encode_acls(ENTRIES)) == json.loads(KAFKAS_JSON)
    assert decode_acls("/p", encode_acls(ENTRIES)) == ENTRIES


def test_names_are_read_in_any_case_as_kafka_does() -> None:
    text = KAFKAS_JSON.replace("DescribeConfigs", "DESCRIBECONFIGS").replace("Deny", "DENY")

    assert decode_acls("/p", text.encode()) == ENTRIES


def test_operations_of_newer_brokers_are_unknown() -> None:
    data = KAFKAS_JSON.replace("DescribeConfigs", "Fly").replace("Deny", "Doubt").encode()

    found = {(entry.operation, entry.permission, entry.is_known) for entry in decode_acls("/p", data)}
    assert found == {
        (AclOperation.UNKNOWN, AclPermission.ALLOW, False),
        (AclOperation.ALL, AclPermission.UNKNOWN, False),
    }


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":{"principal":1}}',
        b'{"version":1,"acls":["User:alice"]}',
        KAFKAS_JSON.replace("User:bob", "bob").encode(),
        KAFKAS_JSON.replace('"192.0.2.1"', "7").encode(),
        KAFKAS_JSON.replace('"host"', '"hosts"').encode(),
        KAFKAS_JSON.replace('"All"', "null").encode(),
        b"\xff",
    ],
)
def test_malformed_entries_are_refused(data: bytes) -> None:
    with pytest.raises(BadZnode, match=r"/p "):
        decode_acls("/p", data)


def test_an_empty_znode_has_no_entries() -> None:
    assert decode_acls("/p", b"") == frozenset()


def test_paths_are_kafkas() -> None:
    assert acl_path(LITERAL) == "/kafka-acl/TransactionalId/tx:1"
    assert acl_path(PREFIXED) == "/kafka-acl-extended/prefixed/DelegationToken/é"
    assert (
        acl_path(ResourcePattern(AclResource.CLUSTER, "kafka-cluster")) == "/kafka-acl/Cluster/kafka-cluster"
    )
    assert {"/kafka-acl/Topic", "/kafka-acl/User", "/kafka-acl-extended/prefixed/Group"} <= set(ACL_FOLDERS)
    assert {"/kafka-acl-changes", "/kafka-acl-extended-changes"} <= set(ACL_FOLDERS)


def test_notifications_are_kafkas() -> None:
    assert acl_change_prefix(LITERAL) == "/kafka-acl-changes/acl_changes_"
    assert encode_acl_change(LITERAL) == b"TRANSACTIONAL_ID:tx:1"
    assert acl_change_prefix(PREFIXED) == "/kafka-acl-extended-changes/acl_changes_"
    assert json.loads(encode_acl_change(PREFIXED)) == {
        "version": 1, "resourceType": "DELEGATION_TOKEN", "name": "é", "patternType": "PREFIXED"
    }  # fmt: skip


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED])
def test_a_notification_names_the_pattern_that_it_was_written_for(pattern: ResourcePattern) -> None:
    path = acl_change_prefix(pattern) + "0000000001"

    assert decode_acl_change(path, encode_acl_change(pattern)) == pattern


@pytest.mark.parametrize(
    ("folder", "data"),
    [
        ("/kafka-acl-changes", b""),
        ("/kafka-acl-changes", b"Topic"),
        ("/kafka-acl-changes", b"Topic:"),
        ("/kafka-acl-changes", b"Any:t"),
        ("/kafka-acl-changes", b"Star:t"),
        ("/kafka-acl-changes", b"Topic:a/b"),
        ("/kafka-acl-changes", b"Topic:\xff"),
        ("/kafka-acl-extended-changes", b"Topic:t"),
        ("/kafka-acl-extended-changes", b"[1]"),
        ("/kafka-acl-extended-changes", b'{"version":1,"resourceType":"TOPIC","name":"t"}'),
        (
            "/kafka-acl-extended-changes",
            b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"MATCH"}',
        ),
        (
            "/kafka-acl-extended-changes",
            b'{"version":1,"resourceType":"TOPIC","name":7,"patternType":"LITERAL"}',
        ),
    ],
)
def test_malformed_notifications_are_refused(folder: str, data: bytes) -> None:
    with pytest.raises(BadZnode, match=r"acl_changes_0000000001 does not (name|hold)"):
        decode_acl_change(f"{folder}/acl_changes_0000000001", data)


@pytest.mark.parametrize(
    ("name", "is_name"),
    [
        ("t", True), ("*", True), ("a:b c", True), ("é", True), ("...", True), ("\U0001f600", True),
        ("", False), (".", False), ("..", False), ("a/b", False), ("/", False), ("a\x00", False),
        ("a\n", False), ("\x85", False), ("\ue000", False), ("\uffff", False),
    ],
)  # fmt: skip
def test_the_name_of_a_pattern_is_the_name_of_a_znode(name: str, is_name: bool) -> None:
    assert is_acl_name(name) is is_name
