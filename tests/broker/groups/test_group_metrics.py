"""What a broker's metrics say of its groups: how many of each protocol, and how often each rebalances."""

from __future__ import annotations

from pathlib import Path

from holdfast_log.broker.groups.metrics import GROUP_METRICS
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.groups.group_broker import GroupBroker, join_alone

JOINS = 0


def shown(broker: GroupBroker, name: str) -> dict[str, float]:
    """The values of a metric with one label, by its value."""
    (row,) = (row for row in GROUP_METRICS if row.name == name)
    return {sample.labels[0]: sample.value for sample in row.read(broker.groups.lag)}


def join_consumer_group(broker: GroupBroker, group: str, member_id: str) -> int:
    """Join a group of KIP-848. Returns the member's epoch."""
    answer = broker.client().call(
        ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=JOINS,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
    )
    assert answer.error_code == ErrorCode.NONE
    epoch: int = answer.member_epoch
    return epoch


def test_groups_are_counted_by_protocol_and_show_their_epochs(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_initial_rebalance_delay_ms=0)
    broker.assign("t")
    broker.make_offsets_topic()
    assert shown(broker, "holdfast_groups") == {"classic": 0, "managed": 0, "consumer": 0}
    assert shown(broker, "holdfast_group_epoch") == {}

    generation = join_alone(broker, broker.client(), "old").generation_id
    first = join_consumer_group(broker, "new", "anna")

    assert shown(broker, "holdfast_groups") == {"classic": 1, "managed": 0, "consumer": 1}
    assert shown(broker, "holdfast_group_epoch") == {"old": generation, "new": first}

    assert join_consumer_group(broker, "new", "bert") > first
    assert shown(broker, "holdfast_group_epoch")["new"] > first, "each member that comes changes the group"
