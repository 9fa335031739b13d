"""Offsets by topic, for deleted topics, compared with a plain search through all offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.coordinator.groups.effects import ShardResult
from holdfast_log.coordinator.groups.offsets import GroupOffsets
from holdfast_log.coordinator.groups.records import CommittedOffset
from holdfast_log.protocol.topic_partition import TopicPartition

COMMITTED = CommittedOffset(7, -1, "", 0)

groups = st.sampled_from(["g", "h"])
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 2))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), groups, partitions),
        st.tuples(st.just("delete"), groups, partitions),
        st.tuples(st.just("delete group"), groups, partitions),
        st.tuples(st.just("delete topic"), groups, partitions),
        st.tuples(st.just("refuse"), groups, partitions),
    ),
    max_size=40,
)


@given(steps)
def test_deleting_a_topic_deletes_exactly_its_offsets(
    steps: list[tuple[str, str, TopicPartition]],
) -> None:
    offsets = GroupOffsets()
    expected: dict[tuple[str, TopicPartition], None] = {}
    for kind, group_id, partition in steps:
        result, at = ShardResult(), (group_id, partition)
        gone: list[tuple[str, TopicPartition]] = []
        match kind:
            case "commit":
                offsets.commit(result, group_id, partition, COMMITTED)
                expected[at] = None
            case "delete":
                offsets.delete(result, group_id, partition)
                gone = [each for each in expected if each == at]
            case "delete group":
                offsets.delete_group(result, group_id)
                gone = [each for each in expected if each[0] == group_id]
            case "delete topic":
                offsets.delete_topics(result, [partition.topic])
                gone = [each for each in expected if each[1].topic == partition.topic]
            case "refuse":
                # The log has refused the records: everything is as before.
                offsets.delete_topics(result, [partition.topic])
                for (group, one), before in result.offsets_before.items():
                    offsets.restore(group, one, before)
        if gone:
            assert sorted(result.offsets_before) == sorted(gone)
        for at in gone:
            del expected[at]
        kept = [(group, one) for group in offsets.group_ids() for one in offsets.of_group(group)]
        assert sorted(kept) == sorted(expected)


def test_the_index_by_topic_is_empty_when_all_offsets_are_deleted() -> None:
    offsets = GroupOffsets()
    for number in range(3):
        offsets.commit(ShardResult(), "g", TopicPartition("a", number), COMMITTED)
        offsets.commit(ShardResult(), "g", TopicPartition("a", number), COMMITTED)
    offsets.delete(ShardResult(), "g", TopicPartition("a", 1))
    offsets.delete(ShardResult(), "g", TopicPartition("a", 1))
    offsets.delete_topics(ShardResult(), ["a", "b"])
    assert not offsets.has_any("g")
    assert not offsets._readers
