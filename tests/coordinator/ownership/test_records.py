"""Ownership records: every field is read back, and every name has a znode of its own."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.coordinator.ownership.records import (
    FREE_BYTES_MAX,
    GRANT_BYTES_MAX,
    GROUPS_MAX,
    HISTORY_BYTES_MAX,
    HISTORY_MAX,
    Grant,
    NameKey,
    Owner,
    OwnershipRecord,
    PartitionKey,
    ReaderAssignment,
    decode_ownership,
    encode_ownership,
    grant_bytes,
    name_of_znode,
    owned_names_path,
    owned_topic_path,
    topic_id_of_znode,
    trimmed,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.protocol.messages.ownership import Access, LossReason

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
    assignment=st.none() | st.builds(ReaderAssignment, numbers, numbers, numbers),
)
grants = st.builds(
    Grant,
    generation=numbers,
    incarnation=numbers,
    owner=owners,
    claimed_generation=numbers,
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
def test_a_record_is_decoded_as_it_was_encoded(record: OwnershipRecord) -> None:
    assert decode_ownership("/x", encode_ownership(record)) == record


def test_the_write_incarnation_is_written_if_the_history_has_forgotten_it() -> None:
    owner = Owner("o", "c", "User:u", "h", 1000, Access.READ)
    record = OwnershipRecord(9, {"g": (Grant(2, 9, owner, 1, 5, 7),)}, 4)
    assert json.loads(encode_ownership(record))["written"] == 4
    assert decode_ownership("/x", encode_ownership(record)).write_incarnation == 4


def test_the_encoding_does_not_change() -> None:
    """Newer brokers must read what older ones have written."""
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
def test_other_data_is_refused(data: bytes) -> None:
    with pytest.raises(BadZnode, match="/x"):
        decode_ownership("/x", data)


@given(st.text(min_size=1), st.text(min_size=1))
def test_each_name_has_a_path_of_its_own(group: str, name: str) -> None:
    path = NameKey(group, name).path
    parent, _, child = path.rpartition("/")
    assert parent == owned_names_path(group)
    assert name_of_znode(child) == name
    assert name_of_znode(parent.rpartition("/")[2]) == group
    assert child not in (".", "..")
    assert child.isascii()


def test_a_partitions_path_has_its_topics_id() -> None:
    topic_id = uuid.UUID(int=5)
    key = PartitionKey(topic_id, 3, "now")
    assert key == PartitionKey(topic_id, 3, "then")
    assert key.path == f"{owned_topic_path(topic_id)}/3"
    assert topic_id_of_znode(owned_topic_path(topic_id).rpartition("/")[2]) == topic_id
    assert topic_id_of_znode("not an id") is None


def past(incarnation: int, owner: Owner) -> Grant:
    return Grant(incarnation, incarnation, owner, -1, 5, 7).ended(LossReason.RELEASED, 9)


def test_a_history_with_short_names_is_written_completely() -> None:
    owner = Owner(str(uuid.uuid4()), "journal-writer-1", "User:ANONYMOUS", "192.168.100.100", 10_000)
    grants = tuple(past(number, owner) for number in range(HISTORY_MAX))
    record = OwnershipRecord(HISTORY_MAX, {"app": grants})
    assert trimmed(record) == record


def test_fewer_grants_with_long_names_are_remembered() -> None:
    owner = Owner("\N{GRINNING FACE}" * 200, "c", "User:u", "h", 1000)
    grants = tuple(past(number, owner) for number in range(HISTORY_MAX))
    history = trimmed(OwnershipRecord(HISTORY_MAX, {"app": grants})).histories["app"]
    assert 1 < len(history) < HISTORY_MAX
    assert history == grants[-len(history) :]
    assert len(encode_ownership(OwnershipRecord(1, {"app": history}))) < HISTORY_BYTES_MAX + GRANT_BYTES_MAX


@given(grants)
def test_no_grant_takes_more_bytes_than_grant_bytes(grant: Grant) -> None:
    encoded = encode_ownership(OwnershipRecord(1, {"": (grant,)}))
    empty = encode_ownership(OwnershipRecord(1, {"": ()}))
    assert len(encoded) - len(empty) - len(',"written":') - 20 <= grant_bytes(grant)


def test_free_groups_are_forgotten_and_the_floor_keeps_their_generation() -> None:
    owner = Owner("o", "c", "User:u", "h", 1000)
    histories = {f"g{number}": (past(number + 1, owner),) for number in range(GROUPS_MAX + 2)}
    histories["g0"] = (Grant(1, 1, owner, -1, 5),)
    record = trimmed(OwnershipRecord(500, histories))
    assert list(record.histories) == ["g0", *(f"g{number}" for number in range(3, GROUPS_MAX + 2))]
    assert record.floor == 3
    assert trimmed(record) == record
    assert decode_ownership("/x", encode_ownership(record)).floor == 3


def test_groups_with_long_names_are_forgotten_earlier() -> None:
    owner = Owner("o" * 200, "c" * 200, "User:u", "h", 1000)
    histories = {f"{number:0255}": (past(number + 1, owner),) for number in range(GROUPS_MAX)}
    record = trimmed(OwnershipRecord(500, histories))
    assert 20 < len(record.histories) < GROUPS_MAX
    assert record.floor == GROUPS_MAX - len(record.histories)
    assert len(encode_ownership(record)) < FREE_BYTES_MAX
