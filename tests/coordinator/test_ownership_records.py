"""What is written of owners: every field comes back, and names of any kind have a znode of their own."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.ownership_records import (
    Grant,
    NameKey,
    Owner,
    OwnershipRecord,
    PartitionKey,
    decode_ownership,
    encode_ownership,
    name_of_znode,
    owned_names_path,
    owned_topic_path,
    topic_id_of_znode,
)
from coordinator.znodes import BadZnode
from protocol.messages.ownership import Access, LossReason

texts = st.text(max_size=8)
numbers = st.integers(-1, 2**63 - 1)
owners = st.builds(
    Owner,
    owner_id=texts,
    client_id=texts,
    principal=texts,
    host=texts,
    session_timeout_ms=st.integers(1, 2**31 - 1),
    access=st.sampled_from([Access.NONE, Access.WRITE, Access.READ, Access.WRITE | Access.READ]),
    writer_client_id=st.none() | texts,
    writer_principal=st.none() | texts,
)
grants = st.builds(
    Grant,
    generation=numbers,
    incarnation=numbers,
    owner=owners,
    named=numbers,
    since_ms=numbers,
    fence_offset=numbers,
    until_ms=numbers,
    reason=st.sampled_from(LossReason),
)


@given(
    st.builds(
        OwnershipRecord,
        incarnation=numbers,
        histories=st.dictionaries(texts, st.lists(grants, max_size=3).map(tuple), max_size=3),
    )
)
def test_what_is_written_is_read(record: OwnershipRecord) -> None:
    assert decode_ownership("/x", encode_ownership(record)) == record


def test_a_writer_that_the_history_has_forgotten_is_written_beside_it() -> None:
    owner = Owner("o", "c", "User:u", "h", 1000, Access.READ)
    record = OwnershipRecord(9, {"g": (Grant(2, 9, owner, 1, 5, 7),)}, 4)
    assert json.loads(encode_ownership(record))["written"] == 4
    assert decode_ownership("/x", encode_ownership(record)).write_incarnation == 4


def test_the_form_stays_what_it_is() -> None:
    """Older brokers have written it, and newer ones must read it."""
    owner = Owner("o", "c", "User:u", "h", 1000, Access.WRITE)
    record = OwnershipRecord(3, {"g": (Grant(2, 3, owner, 1, 5, 7),)}, 3)
    assert json.loads(encode_ownership(record)) == {
        "version": 1,
        "incarnation": 3,
        "groups": {
            "g": [
                {
                    "generation": 2,
                    "incarnation": 3,
                    "named": 1,
                    "since": 5,
                    "owner": "o",
                    "client": "c",
                    "principal": "User:u",
                    "host": "h",
                    "session_timeout": 1000,
                    "access": 1,
                    "fence": 7,
                }
            ]
        },
    }


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"incarnation":1,"groups":{"g":[{}]}}', b"\xff"])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(BadZnode, match="/x"):
        decode_ownership("/x", data)


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_makes_a_path_of_its_own(group: str, name: str) -> None:
    path = NameKey(group, name).path
    parent, _, child = path.rpartition("/")
    assert parent == owned_names_path(group)
    assert name_of_znode(child) == name
    assert name_of_znode(parent.rpartition("/")[2]) == group
    assert child not in (".", "..")
    assert child.isascii()


def test_a_partition_goes_by_its_topics_id() -> None:
    topic_id = uuid.UUID(int=5)
    key = PartitionKey(topic_id, 3, "now")
    assert key == PartitionKey(topic_id, 3, "then")
    assert key.path == f"{owned_topic_path(topic_id)}/3"
    assert topic_id_of_znode(owned_topic_path(topic_id).rpartition("/")[2]) == topic_id
    assert topic_id_of_znode("not an id") is None
