"""`__consumer_offsets` read by a lag monitor: a plain consumer that decodes records by Kafka's schemas
only."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.protocol.batches import whole_batches
from holdfast_log.protocol.messages.group_membership import CreateGroupRequest
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast_log.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast_log.protocol.records import Record, iterate
from holdfast_log.protocol.schema import received_records
from tests.broker.groups.group_broker import (
    SESSION_MS,
    SUBSCRIPTION,
    GroupBroker,
    commit,
    join_alone,
    sync_request,
)
from tests.broker.world import fetch_request, only_fetched


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    broker = GroupBroker(tmp_path, offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0)
    broker.assign("t", 0)
    broker.make_offsets_topic()
    return broker


class Reader:
    """Decodes fields in the order of a schema."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def number(self, layout: str) -> int:
        size = struct.calcsize(layout)
        (value,) = struct.unpack(layout, self.data[:size])
        self.data = self.data[size:]
        return int(value)

    def string(self) -> str | None:
        size = self.number(">h")
        return None if size < 0 else self.take(size).decode()

    def blob(self) -> bytes:
        return self.take(self.number(">i"))

    def take(self, size: int) -> bytes:
        taken, self.data = self.data[:size], self.data[size:]
        assert len(taken) == size
        return taken


def records(broker: GroupBroker) -> Iterator[Record]:
    """The topic's records from its start, as a consumer reads them."""
    answer = broker.client().call(fetch_request(broker.topic_id(OFFSETS_TOPIC)))
    data = received_records(only_fetched(answer).records)
    for header in whole_batches(data):
        yield from iterate(data, header)


def monitored(broker: GroupBroker) -> list[tuple[Any, Any]]:
    """Every record as the monitor decodes it; keys of unknown versions are skipped."""
    found: list[tuple[Any, Any]] = []
    for record in records(broker):
        assert record.key is not None
        key = Reader(record.key)
        match key.number(">h"):
            case 0 | 1:  # OffsetCommitKey
                found.append(((key.string(), key.string(), key.number(">i")), offset_value(record.value)))
            case 2:  # GroupMetadataKey
                found.append((key.string(), group_value(record.value)))
            case _:
                continue
        assert not key.data, "bytes behind the key"
    return found


def offset_value(data: bytes | None) -> dict[str, Any] | None:
    """OffsetCommitValue v3."""
    if data is None:
        return None
    value = Reader(data)
    assert value.number(">h") == 3
    fields = {
        "offset": value.number(">q"),
        "leaderEpoch": value.number(">i"),
        "metadata": value.string(),
        "commitTimestamp": value.number(">q"),
    }
    assert not value.data, "bytes behind the value"
    return fields


def group_value(data: bytes | None) -> dict[str, Any] | None:
    """GroupMetadataValue v3."""
    if data is None:
        return None
    value = Reader(data)
    assert value.number(">h") == 3
    fields: dict[str, Any] = {
        "protocolType": value.string(),
        "generation": value.number(">i"),
        "protocol": value.string(),
        "leader": value.string(),
        "currentStateTimestamp": value.number(">q"),
    }
    fields["members"] = [
        {
            "memberId": value.string(),
            "groupInstanceId": value.string(),
            "clientId": value.string(),
            "clientHost": value.string(),
            "rebalanceTimeout": value.number(">i"),
            "sessionTimeout": value.number(">i"),
            "subscription": value.blob(),
            "assignment": value.blob(),
        }
        for _ in range(value.number(">i"))
    ]
    assert not value.data, "bytes behind the value"
    return fields


def test_a_lag_monitor_reads_commits_and_their_deletion(broker: GroupBroker) -> None:
    client = broker.client()
    now_ms = broker.now_ms()
    commit(client, "g", 41, metadata="first")
    commit(client, "g", 42)
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    client.call(
        OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])
    )

    key = ("g", "t", 0)
    committed = {"leaderEpoch": -1, "commitTimestamp": now_ms}
    assert monitored(broker) == [
        (key, {"offset": 41, "metadata": "first", **committed}),
        (key, {"offset": 42, "metadata": "", **committed}),
        (key, None),
    ]


def test_a_lag_monitor_reads_a_group_with_and_without_members(broker: GroupBroker) -> None:
    client = broker.client()
    joined = join_alone(broker, client, "g")
    client.call(sync_request("g", joined.member_id, 1))
    leaving = MemberIdentity(member_id=joined.member_id)
    client.call(LeaveGroupRequest(group_id="g", members=[leaving]))

    (key, stable), (_, empty) = monitored(broker)

    assert key == "g"
    assert (stable["protocolType"], stable["generation"], stable["protocol"]) == ("consumer", 1, "range")
    assert stable["leader"] == joined.member_id
    assert stable["members"] == [
        {
            "memberId": joined.member_id,
            "groupInstanceId": None,
            "clientId": "test",
            "clientHost": "/127.0.0.1",
            "rebalanceTimeout": 60_000,
            "sessionTimeout": SESSION_MS,
            "subscription": SUBSCRIPTION,
            "assignment": b"all",
        }
    ]
    assert (empty["generation"], empty["protocol"], empty["leader"], empty["members"]) == (2, None, None, [])


def test_a_lag_monitor_skips_managed_groups(broker: GroupBroker) -> None:
    client = broker.client()
    request = CreateGroupRequest(consumer_group="managed", session_timeout=6_000, topics=["t"])
    assert client.call(request).error_code == 0
    commit(client, "managed", 5)

    assert len(list(records(broker))) == 2
    assert [key for key, _ in monitored(broker)] == [("managed", "t", 0)], "its offsets are like any other's"
