"""The fetch sessions of a broker: which readers get one, and which sessions are replaced."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast_log.broker.replication.fetch_sessions import LEFT_MAX, FetchSessions, SessionLimits
from holdfast_log.broker.replication.session_partitions import FetchReader, FetchSession, SessionPartition
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.fetch import FetchPartition
from holdfast_log.protocol.topic_partition import TopicPartition

TWO_MINUTES_MS = 120_000


class Room:
    """A broker's sessions, with readers that open and use them."""

    def __init__(self, sessions_max: int = 2, partitions_max: int = 100) -> None:
        self.due: list[Callable[[], None]] = []
        self.sessions = FetchSessions(
            random.Random(1).getrandbits, self.due.append, SessionLimits(sessions_max, partitions_max)
        )
        self.now_ms = 0

    def turn(self) -> None:
        """Do what is to be done in another turn."""
        due, self.due[:] = list(self.due), []
        for act in due:
            act()

    def open(self, *, follower: int = -1, partitions: int = 1, connection: int = 1) -> FetchSession | None:
        reader = FetchReader("User:a", follower, connection_id=connection)
        session = self.sessions.open(reader, by_ids=False, partitions=partitions, now_ms=self.now_ms)
        if session is not None:
            self.sessions.name(
                session,
                [
                    ("t", FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1))
                    for index in range(partitions)
                ],
            )
        return session

    def use(self, session: FetchSession) -> None:
        self.sessions.use(session.id, session.epoch, session.reader, by_ids=False, now_ms=self.now_ms)

    def is_open(self, session: FetchSession | None) -> bool:
        return session is not None and self.sessions.is_open(session)


def test_a_consumer_gets_no_session_while_all_are_in_use() -> None:
    room = Room()
    first, second = room.open(), room.open()
    room.now_ms += TWO_MINUTES_MS
    assert room.open(partitions=50) is None
    assert room.is_open(first) and room.is_open(second)


def test_a_new_session_replaces_one_unused_for_two_minutes() -> None:
    room = Room()
    used, unused = room.open(partitions=5), room.open(partitions=5)
    assert used is not None
    room.now_ms += TWO_MINUTES_MS
    room.use(used)
    room.now_ms += 1
    assert room.open() is not None
    assert room.is_open(used) and not room.is_open(unused)


def test_a_follower_replaces_a_consumers_session_at_once_but_no_followers() -> None:
    room = Room()
    consumer, follower = room.open(partitions=50), room.open(follower=2)
    newcomer = room.open(follower=3)
    assert not room.is_open(consumer)
    assert room.is_open(follower) and room.is_open(newcomer)
    assert room.open(follower=4) is None


def test_the_smaller_of_two_consumer_sessions_is_replaced_after_two_minutes() -> None:
    room = Room()
    small, large = room.open(partitions=2), room.open(partitions=9)
    assert small is not None and large is not None
    room.now_ms += TWO_MINUTES_MS + 1
    room.use(small)
    room.use(large)
    assert room.open(partitions=2) is None
    assert room.open(partitions=3) is not None
    assert not room.is_open(small) and room.is_open(large)


def test_large_sessions_make_room_for_a_follower() -> None:
    room = Room(sessions_max=10, partitions_max=100)
    consumers = [room.open(partitions=40) for _ in range(2)]
    assert room.open(partitions=40) is None
    follower = room.open(follower=2, partitions=90)
    assert room.is_open(follower)
    assert not any(map(room.is_open, consumers))
    assert room.sessions.partitions == 90


def test_a_reader_of_more_partitions_than_the_limit_replaces_no_session() -> None:
    room = Room(partitions_max=100)
    consumer = room.open(partitions=40)
    assert room.open(follower=2, partitions=101) is None
    assert room.is_open(consumer)


def test_a_fetch_of_no_partition_gets_no_session() -> None:
    assert Room().open(partitions=0) is None


def test_a_closed_connection_ends_the_sessions_last_used_on_it() -> None:
    room = Room(sessions_max=3)
    moved, stays, goes = room.open(connection=1), room.open(connection=2), room.open(connection=1)
    assert moved is not None
    moved.reader = moved.reader._replace(connection_id=2)
    room.use(moved)
    room.sessions.close_all_of(1)
    assert [room.is_open(each) for each in (moved, stays, goes)] == [True, True, False]


def test_an_ended_session_watches_no_partition() -> None:
    room = Room()
    session = room.open(partitions=3)
    assert session is not None
    for partition in session.partitions.values():
        room.sessions.watch(partition, ("t", partition.wanted.partition))
    assert ("t", 2) in room.sessions
    room.sessions.forget(session, [("t", 2)])
    assert ("t", 2) not in room.sessions and ("t", 0) in room.sessions
    room.sessions.close(session.id, session.reader)
    assert ("t", 0) not in room.sessions
    assert len(room.sessions) == room.sessions.partitions == 0


def test_no_consumer_uses_or_closes_the_session_of_a_follower() -> None:
    room = Room()
    session = room.open()
    assert session is not None
    consumer = session.reader
    session.reader = consumer._replace(replica_id=2)
    with pytest.raises(BrokerError):
        room.sessions.use(session.id, session.epoch, consumer, by_ids=session.by_ids, now_ms=0)
    room.sessions.close(session.id, consumer)
    assert room.is_open(session)
    room.sessions.close(session.id, session.reader)
    assert not room.is_open(session)


def test_session_ids_are_unique_and_never_the_reserved_id() -> None:
    drawn = iter([0, 5, 5, 0, 6])
    sessions = FetchSessions(lambda bits: next(drawn), lambda act: act())
    ids = []
    for _ in range(2):
        session = sessions.open(FetchReader("User:a", -1), by_ids=True, partitions=1, now_ms=0)
        assert session is not None
        ids.append(session.id)
    assert ids == [5, 6]


def test_a_closed_session_cannot_be_used() -> None:
    room = Room()
    session = room.open()
    assert session is not None
    room.sessions.close(session.id, session.reader._replace(principal="User:b"))
    assert room.is_open(session)
    room.sessions.close(session.id, session.reader)
    with pytest.raises(BrokerError):
        room.use(session)


# -- waiting fetches of one partition ------------------------------------------------------------------------

KEY = TopicPartition("t", 0)


class Asked:
    """A waiting fetch that counts how often it is asked."""

    def __init__(self) -> None:
        self.count = 0

    def ask(self, key: SessionPartition) -> None:
        self.count += 1

    def expire(self) -> None: ...


class Looks(dict[SessionPartition, int]):
    """What a fetch needs; counts how often a change looks at it."""

    count = 0

    def get(self, key: SessionPartition, default: Any = None) -> Any:
        self.count += 1
        return super().get(key, default)


class WaitingConsumers:
    """Consumers' sessions of one partition, each with a fetch that waits until the log has `needed` bytes."""

    def __init__(self, needed: Sequence[int]) -> None:
        self.room = Room(sessions_max=len(needed) + 1, partitions_max=1_000_000)
        self.sessions: list[FetchSession] = []
        self.looks: list[Looks] = []
        self.asked: list[Asked] = []
        for each in needed:
            session = self.room.open()
            assert session is not None
            (partition,) = session.partitions.values()
            self.room.sessions.watch(partition, KEY)
            session.stirred.clear()
            self.looks.append(Looks({partition: each}))
            self.asked.append(Asked())
            session.need(self.looks[-1])
            session.waiting = self.asked[-1]
            self.sessions.append(session)

    def write(self, end_bytes: int) -> None:
        self.room.sessions.stir(KEY, consumers=True, written_bytes=end_bytes)

    @property
    def looked(self) -> int:
        """How often a change has looked at a waiting fetch."""
        return sum(looks.count for looks in self.looks)


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_fetches_that_wait_for_more_cost_a_write_nothing_but_the_first(count: int) -> None:
    waiting = WaitingConsumers([1_000] * count)
    for end_bytes in range(100, 200):
        waiting.write(end_bytes)
    assert waiting.looked == count
    assert sum(each.count for each in waiting.asked) == 0
    assert all(session.stirred for session in waiting.sessions)


def test_a_waiting_fetch_is_asked_when_its_bytes_have_come() -> None:
    waiting = WaitingConsumers([300, 100, 200])
    for end_bytes in (50, 99, 150, 200, 250, 350):
        waiting.write(end_bytes)
    assert [each.count > 0 for each in waiting.asked] == [True, True, True]
    early = WaitingConsumers([300, 100, 200])
    early.write(50)
    early.write(200)
    assert [each.count for each in early.asked] == [0, 1, 1]


def test_another_change_than_records_asks_all() -> None:
    waiting = WaitingConsumers([1_000] * 3)
    waiting.write(100)
    waiting.room.sessions.stir(KEY, consumers=True)
    assert [each.count for each in waiting.asked] == [1, 1, 1]


def test_a_fetch_that_is_answered_sees_the_next_write() -> None:
    waiting = WaitingConsumers([1_000])
    waiting.write(100)
    (session,) = waiting.sessions
    (partition,) = session.partitions.values()
    session.waiting = None
    session.need({})
    partition.calm()
    waiting.write(200)
    assert partition in session.stirred


def test_a_sleeping_session_that_ends_is_forgotten() -> None:
    waiting = WaitingConsumers([1_000, 1_000])
    waiting.write(100)
    waiting.room.sessions.close_all_of(1)
    assert KEY not in waiting.room.sessions


MANY = 9 * LEFT_MAX + 7


def of_many_partitions(room: Room, follower: int = -1) -> FetchSession:
    """A session that watches partitions by the thousand."""
    session = room.open(follower=follower, partitions=MANY)
    assert session is not None
    for (topic, index), partition in session.partitions.items():
        room.sessions.watch(partition, TopicPartition(str(topic), index))
    return session


def test_a_connection_that_closes_takes_a_turn_for_few_partitions() -> None:
    room = Room(partitions_max=2 * MANY)
    for _ in range(2):
        of_many_partitions(room)
    room.sessions.close_all_of(1)
    assert not len(room.sessions) and not room.sessions.partitions, "its partitions count no more"
    left = 2 * MANY
    while left:
        assert 0 < left - room.sessions.left_partitions <= LEFT_MAX
        left = room.sessions.left_partitions
        room.turn()
    assert not room.sessions.watchers and not room.due


def test_a_closed_session_of_many_partitions_is_told_nothing() -> None:
    room = Room(partitions_max=2 * MANY)
    session = of_many_partitions(room, follower=2)
    key = TopicPartition("t", MANY - 1)
    session.partitions["t", MANY - 1].calm()
    assert list(room.sessions.content(key)) == [(2, 0)] and room.sessions.used_ms(key) == {2: 0}
    room.sessions.close_all_of(1)
    assert key in room.sessions.watchers
    assert not list(room.sessions.content(key))
    assert not room.sessions.used_ms(key) and not room.sessions.asked_after_ms(key, -1)
    room.sessions.stir(key, followers=True)
    assert not session.stirred and not session.partitions


def test_partitions_that_are_not_dropped_yet_leave_less_room() -> None:
    room = Room(partitions_max=MANY)
    of_many_partitions(room)
    room.sessions.close_all_of(1)
    assert room.open(partitions=LEFT_MAX + 1) is None
    assert room.open(partitions=LEFT_MAX) is not None
    while room.due:
        room.turn()
    assert room.open(partitions=MANY - LEFT_MAX) is not None


def test_fetches_that_wait_again_and_again_leave_nothing_behind() -> None:
    waiting = WaitingConsumers([1_000])
    (session,) = waiting.sessions
    (partition,) = session.partitions.values()
    for needed in range(1_000, 3_000):
        session.need({partition: needed})
        waiting.write(100)
    assert partition.watchers is not None
    assert len(partition.watchers._heap) < 200
