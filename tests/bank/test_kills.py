"""Which coordinator is killed, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_log.coordinator.shards.partitions import partition_of_key
from holdfast_log.coordinator.znodes.topics import NO_LEADER, PartitionState
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.bank.kills import STATE_TOPIC, KillPlan, Sight

EVERY_S = 10.0
ALL = (1, 2, 3, 4, 5)
SHARDS = 3


def ids_in(shard: int, count: int) -> list[str]:
    """Transactional ids whose coordinator leads this partition."""
    names = (f"teller-{number}" for number in range(1000))
    found = [name for name in names if partition_of_key(name, SHARDS) == shard]
    return found[:count]


def sight(
    leaders: Sequence[int] = (1, 2, 3),
    isr: Sequence[int] = ALL,
    registrations: Mapping[int, int] | None = None,
    accounts_isr: Sequence[int] = ALL,
) -> Sight:
    states = {
        TopicPartition(STATE_TOPIC, shard): PartitionState(leader, 1, tuple(isr), 1)
        for shard, leader in enumerate(leaders)
    }
    states[TopicPartition("accounts", 0)] = PartitionState(5, 1, tuple(accounts_isr), 1)
    return Sight(registrations or dict.fromkeys(ALL, 7), states)


def plan(next_s: float = 0.0) -> KillPlan:
    """Shard 0 has one of the ids, shard 1 three, shard 2 two."""
    return KillPlan(EVERY_S, [*ids_in(0, 1), *ids_in(1, 3), *ids_in(2, 2)], 2, next_s)


def test_the_coordinator_of_most_ids_is_killed_when_it_is_time() -> None:
    kills = plan(next_s=4.0)
    assert kills.coordinated(sight()) == {2: 3, 3: 2, 1: 1}
    assert kills.look(3.9, sight()) is None
    assert kills.look(4.0, sight()) == 2


def test_who_leads_nothing_is_not_killed() -> None:
    assert plan().look(0.0, sight(leaders=(NO_LEADER,) * SHARDS)) is None


def test_a_kill_that_was_late_does_not_put_off_the_next_one() -> None:
    kills = plan()
    kills.note_kill(3.0, 2, sight())
    assert kills.next_s == 10.0
    kills.note_kill(31.0, 2, sight())
    assert kills.next_s == 40.0


def test_a_broker_is_spared_without_which_a_partition_has_too_few_in_sync() -> None:
    assert plan().look(0.0, sight(leaders=(1, 2, 2), isr=(1, 2))) is None
    assert plan().look(0.0, sight(leaders=(1, 2, 2), isr=(1, 2, 4))) == 2
    assert plan().look(0.0, sight(leaders=(1, 2, 2), accounts_isr=(2, 3))) == 1


def test_a_dead_broker_is_not_killed_and_counts_in_no_set_though_the_set_names_it() -> None:
    kills = plan()
    kills.note_kill(0.0, 2, sight())
    assert kills.look(10.0, sight()) == 3
    kills.note_kill(10.0, 3, sight())
    assert kills.look(20.0, sight(isr=(1, 2, 3, 4))) is None
    assert kills.look(20.0, sight(isr=(1, 2, 3, 4, 5))) == 1


def test_a_broker_is_back_once_its_next_process_is_in_all_sets() -> None:
    kills = plan()
    kills.note_kill(0.0, 2, sight())
    again = {**dict.fromkeys(ALL, 7), 2: 8}
    for seen in (sight(), sight(registrations=again, isr=(1, 3, 4, 5)), sight(registrations={1: 7})):
        assert kills.look(1.0, seen) is None
        assert kills.away_s == []
    assert kills.look(6.5, sight(registrations=again)) is None
    assert kills.away_s == [6.5]
    assert kills.look(10.0, sight(registrations=again)) == 2


def test_the_account_has_the_pace_and_how_long_brokers_were_out_of_sync() -> None:
    kills = plan()
    assert kills.account() == "0 coordinators killed"
    again = {**dict.fromkeys(ALL, 7), 2: 8}
    kills.note_kill(0.0, 2, sight())
    kills.look(4.5, sight(registrations=again))
    for now_s in (10.0, 20.0, 33.0):
        kills.note_kill(now_s, 1, sight())
    assert kills.account() == (
        "4 coordinators killed, one every 10.0 s (median; 13.0 s at most), in sync again after 4.5 s (4.5 s)"
    )
