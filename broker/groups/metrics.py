"""The metrics of consumer groups, under kafka_exporter's names and Kafka's, from each group's coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

from holdfast_log.broker.groups.lag import GroupLag, GroupPosition
from holdfast_log.broker.metrics.row import MetricRow, Sample, gauge, gauges
from holdfast_log.coordinator.groups.consumer_group import ConsumerGroup
from holdfast_log.coordinator.groups.states import GroupState, GroupType

_PARTITION = ("consumergroup", "topic", "partition")
_TOPIC = ("consumergroup", "topic")
_MANAGER = "kafka_coordinator_group_groupmetadatamanager_"


def _offset(position: GroupPosition) -> int | None:
    return position.offset


def _lag(position: GroupPosition) -> int | None:
    return position.lag


def _each(value: Callable[[GroupPosition], int | None], lag: GroupLag) -> Iterator[Sample]:
    for position in lag.positions():
        found = value(position)
        if found is not None:
            topic, index = position.partition
            yield Sample((position.group, topic, str(index)), found)


def _sums(value: Callable[[GroupPosition], int | None], lag: GroupLag) -> Iterator[Sample]:
    """The sum over each topic whose partitions all have the value: a sum of some of them would mislead."""
    for group, positions in groupby(lag.positions(), lambda position: position.group):
        sums: dict[str, int | None] = {}
        for position in positions:
            topic, found = position.partition.topic, value(position)
            before = sums.get(topic, 0)
            sums[topic] = None if found is None or before is None else before + found
        for topic, total in sums.items():
            if total is not None:
                yield Sample((group, topic), total)


def _members(lag: GroupLag) -> Iterator[Sample]:
    for group in lag.groups.groups():
        yield Sample((group.group_id,), len(group.members))


def _types(lag: GroupLag) -> Iterator[Sample]:
    counts = Counter(group.type for group in lag.groups.groups())
    for group_type in GroupType:
        yield Sample((group_type.value,), counts[group_type])


def _epochs(lag: GroupLag) -> Iterator[Sample]:
    for group in lag.groups.groups():
        epoch = group.epoch if isinstance(group, ConsumerGroup) else group.generation
        yield Sample((group.group_id,), epoch)


def _in_state(state: GroupState) -> MetricRow[GroupLag]:
    name = _MANAGER + "numgroups" + state.value.lower()
    doc = f"Groups in the state {state.value} that this broker coordinates."
    return gauge(name, doc, lambda lag: Counter(group.state for group in lag.groups.groups())[state])


GROUP_METRICS: tuple[MetricRow[GroupLag], ...] = (
    gauges(
        "kafka_consumergroup_current_offset",
        "Offset that a group has committed in a partition: of the next record that it reads.",
        _PARTITION,
        partial(_each, _offset),
    ),
    gauges(
        "kafka_consumergroup_lag",
        "Records from a group's committed offset to the partition's high watermark. Missing while the leader "
        "does not answer.",
        _PARTITION,
        partial(_each, _lag),
    ),
    gauges(
        "kafka_consumergroup_current_offset_sum",
        "Offsets that a group has committed in a topic, added up over its partitions.",
        _TOPIC,
        partial(_sums, _offset),
    ),
    gauges(
        "kafka_consumergroup_lag_sum",
        "Lag of a group in a topic, added up over its partitions. Missing if that of a partition is.",
        _TOPIC,
        partial(_sums, _lag),
    ),
    gauges("kafka_consumergroup_members", "Members of a group.", ("consumergroup",), _members),
    gauges(
        "holdfast_group_epoch",
        "Generation of a classic or managed group, epoch of a consumer group (KIP-848): it rises with each "
        "rebalance, so one that rises all the time has members that come and go.",
        ("consumergroup",),
        _epochs,
    ),
    gauges(
        "holdfast_groups",
        "Groups that this broker coordinates, by protocol: classic, consumer (KIP-848), managed.",
        ("protocol",),
        _types,
    ),
    gauge(
        "holdfast_lag_omitted",
        "Committed offsets that are not shown, because there are more than metrics.lag.partitions.max.",
        lambda lag: lag.omitted,
    ),
    gauge(
        _MANAGER + "numgroups",
        "Groups that this broker coordinates.",
        lambda lag: sum(1 for _ in lag.groups.groups()),
    ),
    gauge(
        _MANAGER + "numoffsets",
        "Committed offsets of groups that this broker coordinates.",
        lambda lag: lag.groups.offset_count,
    ),
    *map(_in_state, GroupState),
)
