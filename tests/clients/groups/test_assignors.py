"""Assignors give each partition to one subscribed member, evenly, as other clients do."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor as TheirCooperative
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.groups.assignor_loading import load_assignors
from holdfast_log.clients.groups.assignors import Assignor, MemberPartitions, MemberSubscription
from holdfast_log.clients.groups.sticky import (
    CooperativeStickyAssignor,
    StickyAssignor,
    cooperative_claim,
    sticky_claim,
)
from holdfast_log.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    flat,
    grouped,
)
from holdfast_log.protocol.schema import MalformedMessage
from holdfast_log.protocol.topic_partition import TopicPartition

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
TOPICS = ("a", "b", "c")

partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
subscriptions = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(6)]),
    st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda topics: tuple(sorted(topics))),
    min_size=1,
)


def members_of(topics: Mapping[str, tuple[str, ...]]) -> dict[str, MemberSubscription]:
    return {member: MemberSubscription(wanted) for member, wanted in topics.items()}


def loads(shares: MemberPartitions) -> list[int]:
    return [len(share) for share in shares.values()]


def moved(before: Mapping[str, list[TopicPartition]], after: MemberPartitions) -> set[TopicPartition]:
    """The partitions that remaining members have lost."""
    return {partition for member, share in before.items() if member in after for partition in share} - {
        partition
        for member, share in after.items()
        for partition in share
        if partition in before.get(member, ())
    }


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(counts=partition_counts, wanted=subscriptions)
def test_every_partition_is_assigned_to_one_subscribed_member(
    name: str, counts: dict[str, int], wanted: dict[str, tuple[str, ...]]
) -> None:
    (assignor,) = load_assignors([name])
    shares = assignor.assign(counts, members_of(wanted))

    given_out = [partition for share in shares.values() for partition in share]
    anybody = {topic for topics in wanted.values() for topic in topics}
    assert sorted(given_out) == [
        TopicPartition(topic, number)
        for topic in sorted(counts)
        if topic in anybody
        for number in range(counts[topic])
    ]
    assert all(partition.topic in wanted[member] for member, share in shares.items() for partition in share)
    assert set(shares) == set(wanted)


@settings(max_examples=40)
@given(counts=partition_counts, members=st.integers(1, 6))
def test_equal_members_get_even_shares(counts: dict[str, int], members: int) -> None:
    everybody = members_of({f"m{number}": tuple(counts) for number in range(members)})
    for name in ("roundrobin", "sticky", "cooperative-sticky"):
        (assignor,) = load_assignors([name])
        found = loads(assignor.assign(counts, everybody))
        assert max(found) - min(found) <= 1, name


@settings(max_examples=40)
@given(counts=partition_counts, wanted=subscriptions)
def test_range_and_round_robin_assign_as_other_clients_do(
    counts: dict[str, int], wanted: dict[str, tuple[str, ...]]
) -> None:
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: set(range(counts.get(topic, 0))) or None)
    theirs = {m: ConsumerProtocolMemberMetadata(0, list(topics), b"") for m, topics in wanted.items()}
    for name, their_assignor in (
        ("range", RangePartitionAssignor),
        ("roundrobin", RoundRobinPartitionAssignor),
    ):
        (assignor,) = load_assignors([name])
        found = their_assignor.assign(cluster, theirs)  # type: ignore[arg-type]
        ours = assignor.assign(counts, members_of(wanted))
        assert {m: sorted(share) for m, share in ours.items()} == {
            m: sorted((tp.topic, tp.partition) for tp in answer.partitions()) for m, answer in found.items()
        }, name


class TestSticking:
    def told(
        self, assignor: Assignor, shares: MemberPartitions, generation: int
    ) -> dict[str, MemberSubscription]:
        """The members with their owned partitions, as they join the next rebalance."""
        topics = tuple(sorted({partition.topic for share in shares.values() for partition in share}))
        owned = assignor.is_cooperative
        return {
            member: MemberSubscription(
                topics,
                tuple(share) if owned else (),
                generation if owned else -1,
                assignor.user_data(share, generation),
            )
            for member, share in shares.items()
        }

    @pytest.fixture(params=[StickyAssignor(), CooperativeStickyAssignor()], ids=lambda each: each.name)
    def assignor(self, request: pytest.FixtureRequest) -> Assignor:
        assignor: Assignor = request.param
        return assignor

    def test_an_even_assignment_stays_unchanged(self, assignor: Assignor) -> None:
        counts = {"a": 7, "b": 5}
        before = assignor.assign(counts, members_of(dict.fromkeys("xyz", ("a", "b"))))

        assert assignor.assign(counts, self.told(assignor, before, 1)) == before

    def test_a_new_member_gets_its_share_and_the_others_keep_the_rest(self, assignor: Assignor) -> None:
        before = assignor.assign({"a": 12}, members_of(dict.fromkeys("xyz", ("a",))))
        members = self.told(assignor, before, 1) | members_of({"w": ("a",)})
        after = assignor.assign({"a": 12}, members)

        assert len(moved(before, after)) == 3
        if assignor.is_cooperative:
            assert after["w"] == [], "they have to be let go first"
            after = assignor.assign({"a": 12}, self.told(assignor, after, 2))
        assert loads(after) == [3, 3, 3, 3]

    def test_partitions_of_a_leaving_member_are_spread_evenly(self, assignor: Assignor) -> None:
        before = assignor.assign({"a": 12}, members_of(dict.fromkeys("xyz", ("a",))))
        rest = self.told(assignor, {name: before[name] for name in "xy"}, 1)
        after = assignor.assign({"a": 12}, rest)

        assert loads(after) == [6, 6]
        assert moved(before, after) == set()

    def test_of_two_owners_the_one_of_the_later_generation_counts(self) -> None:
        mine, late = [TopicPartition("a", 0), TopicPartition("a", 1)], [TopicPartition("a", 1)]
        assignor = StickyAssignor()
        members = {
            "old": MemberSubscription(("a",), user_data=assignor.user_data(mine, 3)),
            "new": MemberSubscription(("a",), user_data=assignor.user_data(late, 4)),
        }
        assert assignor.assign({"a": 2}, members) == {"new": late, "old": [TopicPartition("a", 0)]}

    def test_unknown_user_data_is_ignored(self) -> None:
        members = {"m": MemberSubscription(("a",), user_data=b"\xff\x01")}
        assert loads(StickyAssignor().assign({"a": 3}, members)) == [3]
        assert loads(CooperativeStickyAssignor().assign({"a": 3}, members)) == [3]

    @pytest.mark.parametrize("sort", [StickyAssignor, CooperativeStickyAssignor])
    @settings(max_examples=40)
    @given(
        counts=partition_counts, first=st.integers(1, 5), second=st.integers(1, 5), extra=st.integers(0, 3)
    )
    def test_shares_are_even_after_any_change(
        self, sort: type[Assignor], counts: dict[str, int], first: int, second: int, extra: int
    ) -> None:
        assignor = sort()
        everything = tuple(sorted(counts))
        shares = assignor.assign(counts, members_of({f"m{n}": everything for n in range(first)}))
        grown = {topic: count + extra for topic, count in counts.items()}
        for generation in range(1, 4):
            members = members_of({f"m{n}": everything for n in range(second)})
            for name, told in self.told(assignor, shares, generation).items():
                if name in members:
                    members[name] = MemberSubscription(
                        everything, told.owned, told.generation, told.user_data
                    )
            shares = assignor.assign(grown, members)

        assert max(loads(shares)) - min(loads(shares)) <= 1
        assert sum(loads(shares)) == sum(grown.values())


class TestBytes:
    """Our client decodes subscriptions and assignments of other clients, and they decode ours."""

    OWNED = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))

    @pytest.mark.parametrize("version", range(4))
    def test_a_subscription_is_decoded_as_it_was_encoded(self, version: int) -> None:
        given_ = Subscription(
            topics=["a", "b"],
            user_data=b"x",
            owned_partitions=grouped(self.OWNED),
            generation_id=7,
            rack_id="r1",
        )
        read = decode_subscription(encode_subscription(given_, version))

        assert (read.topics, read.user_data) == (["a", "b"], b"x")
        assert flat(read.owned_partitions) == (list(self.OWNED) if version >= 1 else [])
        assert read.generation_id == (7 if version >= 2 else -1)
        assert read.rack_id == ("r1" if version >= 3 else None)

    def test_of_a_newer_version_the_known_fields_are_decoded(self) -> None:
        newer = b"\x00\x09" + encode_subscription(Subscription(topics=["a"], rack_id="r"))[2:] + b"more"
        assert decode_subscription(newer).rack_id == "r"

    def test_other_clients_decode_our_encoding(self) -> None:
        (assignor,) = load_assignors(["sticky"])
        subscription = encode_subscription(
            Subscription(
                topics=["a", "b"],
                user_data=assignor.user_data(self.OWNED, 5),
                owned_partitions=grouped(self.OWNED),
            )
        )
        assert ConsumerProtocolMemberMetadata.decode(subscription).subscription == ["a", "b"]
        theirs = ConsumerProtocolSubscription.decode(subscription)
        told = StickyAssignorUserDataV1.decode(theirs.user_data)
        assert (told.generation, told.previous_assignment) == (5, [("a", [0, 2]), ("b", [1])])
        assert sorted((row.topic, list(row.partitions)) for row in theirs.owned_partitions) == [
            ("a", [0, 2]),
            ("b", [1]),
        ]
        shared = ConsumerProtocolAssignment.decode(encode_assignment(self.OWNED))
        assert [(each.topic, each.partition) for each in shared.partitions()] == list(self.OWNED)

    @pytest.mark.parametrize(
        ("their_assignor", "claim_of"),
        [(StickyPartitionAssignor, sticky_claim), (TheirCooperative, cooperative_claim)],
    )
    def test_subscriptions_of_other_clients_are_decoded(self, their_assignor: Any, claim_of: Any) -> None:
        other = their_assignor()
        other.member_assignment = list(self.OWNED)
        other.generation = 6
        told = decode_subscription(other.metadata(["a", "b"]).encode())
        owned, _ = claim_of(
            MemberSubscription(
                tuple(told.topics),
                tuple(TopicPartition(*each) for each in flat(told.owned_partitions)),
                told.generation_id,
                bytes(told.user_data or b""),
            )
        )
        assert sorted(owned) == sorted(self.OWNED)

    def test_an_assignment_of_another_client_is_decoded(self) -> None:
        theirs = ConsumerProtocolAssignment(0, [("a", [0, 2]), ("b", [1])], b"").encode()
        assert decode_assignment(theirs) == list(self.OWNED)
        assert decode_assignment(b"") == []

    @given(st.binary(max_size=60))
    def test_arbitrary_bytes_raise_no_unexpected_error(self, data: bytes) -> None:
        for decode in (decode_subscription, decode_assignment):
            try:
                decode(data)
            except MalformedMessage:
                continue


class Fixed:
    """An application's assignor, which gives all partitions to the first member."""

    name = "fixed"
    is_cooperative = False

    def user_data(self, owned: object, generation: int) -> bytes:
        return b""

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> MemberPartitions:
        first = min(members)
        shares: MemberPartitions = {member: [] for member in members}
        shares[first] = [
            TopicPartition(topic, n) for topic, count in partitions.items() for n in range(count)
        ]
        return shares


def test_an_application_can_supply_its_own_assignor() -> None:
    (assignor,) = load_assignors([f"{__name__}:Fixed"])
    assert loads(assignor.assign({"a": 3}, members_of({"x": ("a",), "y": ("a",)}))) == [3, 0]


def test_kafkas_class_names_of_assignors_are_accepted() -> None:
    found = load_assignors(["org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "range"])
    assert [assignor.name for assignor in found] == ["cooperative-sticky", "range"]


@pytest.mark.parametrize("name", ["rang", "no.such.module:Assignor", "holdfast_log.clients.config:Nothing"])
def test_an_assignor_that_cannot_be_imported_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="range, roundrobin, sticky, cooperative-sticky"):
        load_assignors([name])
