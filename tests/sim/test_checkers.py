"""The judges of logs report every kind of violation, and none in a correct log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.models.batches import batch
from tests.models.disk import SimDisk
from tests.models.world import World
from tests.sim.checkers import StoredLog, check_all, read_log
from tests.sim.history import Batch, History, Incarnation, Outcome

AT = ("t", 0)
PLACE = Incarnation(AT)


class Room:
    """A disk with logs on it, and a history to judge them by."""

    def __init__(self) -> None:
        self.world = World(1)
        self.history = History(self.world)
        self.disk = SimDisk(self.world.rng("disk"), self.world.now_ms)

    def stored(self, *batches: tuple[int, int, list[bytes]], where: str = "b1") -> StoredLog:
        """A stored log of batches, each given as (base offset, leader epoch, values)."""
        path = f"/disk1/{where}/t-0"
        self.disk.make_directory(path)
        file = self.disk.open(f"{path}/00000000000000000000.log", create=True)
        for base_offset, epoch, values in batches:
            file.append([encoded(base_offset, epoch, values)])
        return read_log(self.disk, path, where)

    def sent(self, number: int, values: list[bytes], **fields: object) -> Batch:
        batch = Batch("p0", AT, number, values, -1, is_idempotent=True, made_s=0.0, sends=1)
        for name, value in fields.items():
            setattr(batch, name, value)
        self.history.batches.append(batch)
        return batch

    def found(self, *replicas: StoredLog) -> list[str]:
        return check_all(self.history, {PLACE: replicas})


def encoded(base_offset: int, epoch: int, values: list[bytes]) -> bytes:
    data = bytearray(batch(*values, base_offset=base_offset))
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


@pytest.fixture
def room() -> Room:
    room = Room()
    room.sent(0, [b"a", b"b"], outcome=Outcome.ACKED, offset=0)
    room.sent(1, [b"c"], outcome=Outcome.ACKED, offset=2)
    room.history.seen[PLACE] = [b"a", b"b", b"c"]
    return room


GOOD = ((0, 0, [b"a", b"b"]), (2, 1, [b"c"]))


def test_a_correct_log_has_no_violations(room: Room) -> None:
    room.sent(2, [b"never arrived"], outcome=Outcome.UNKNOWN)
    assert room.found(room.stored(*GOOD), room.stored(*GOOD, where="b2")) == []


def test_a_lost_acknowledged_record_is_found(room: Room) -> None:
    room.history.seen[PLACE].pop()
    assert room.found(room.stored(GOOD[0])) == [
        "batch 1 of p0 for t-0 was acknowledged at offset 2, but is lost"
    ]


def test_a_record_acknowledged_with_acks_1_may_be_lost(room: Room) -> None:
    room.history.batches[1].acks = 1
    room.history.seen[PLACE].pop()
    assert room.found(room.stored(GOOD[0])) == []


def test_an_acknowledged_record_at_another_offset_is_found(room: Room) -> None:
    room.history.batches[0].offset = 1
    assert room.found(room.stored(*GOOD)) == [
        "batch 0 of p0 for t-0 was acknowledged at offset 1, but is at another offset"
    ]


def test_differing_replicas_are_found(room: Room) -> None:
    room.sent(2, [b"d"])
    other = room.stored(GOOD[0], (2, 2, [b"d"]), where="b2")
    assert room.found(room.stored(*GOOD), other) == [
        "t-0 differs: b1 has [2..2] of epoch 1, b2 has [2..2] of epoch 2 at 2"
    ]
    assert room.found(room.stored(*GOOD, where="b3"), room.stored(GOOD[0], where="b4")) == [
        "t-0 ends at 3 on b3, at 2 on b4"
    ]


def test_deleted_records_may_be_missing(room: Room) -> None:
    """A replica keeps the batch in which the deletion ends, and may keep earlier ones."""
    room.history.deletes(PLACE, 2)
    assert room.found(room.stored(GOOD[1]), room.stored(*GOOD, where="b2")) == []


def test_records_that_nobody_deleted_may_not_be_missing(room: Room) -> None:
    room.history.deletes(PLACE, 1)
    assert room.found(room.stored(GOOD[1]), room.stored(*GOOD, where="b2"))[:2] == [
        "t-0 on b1 has offset 2, but 1 is expected",
        "t-0 differs: b1 has [2..2] of epoch 1, b2 has [0..1] of epoch 0 at 2",
    ]


def test_a_log_that_starts_after_the_deleted_records_is_found(room: Room) -> None:
    room.history.deletes(PLACE, 1)
    log = replace(room.stored(*GOOD), start_offset=2)
    assert room.found(log) == ["t-0 on b1 starts at 2, but 1 was not deleted"]


def test_offsets_and_epochs_out_of_order_are_found(room: Room) -> None:
    room.history.seen.clear()
    room.history.batches.pop()
    room.sent(1, [b"c"])
    found = room.found(room.stored((0, 1, [b"a", b"b"]), (3, 0, [b"c"])))
    assert found[:2] == [
        "t-0 on b1 has offset 3, but 2 is expected",
        "t-0 on b1: epoch 0 at 3 after 1",
    ]


def test_invented_and_repeated_records_are_found(room: Room) -> None:
    found = room.found(room.stored(*GOOD, (3, 1, [b"x"]), (4, 1, [b"c"])))
    assert found[0] == "t-0 has a record at 3 that no producer sent: b'x'"
    assert found[1] == "t-0 has a record of batch 1 of p0 for t-0 2 times, 1 allowed"


def test_a_producer_without_idempotence_may_repeat_a_batch_it_sent_twice(room: Room) -> None:
    room.history.batches[1].is_idempotent = False
    room.history.batches[1].sends = 2
    room.history.seen[PLACE].append(b"c")
    assert room.found(room.stored(*GOOD, (3, 1, [b"c"]))) == []


def test_reordered_batches_of_an_idempotent_producer_are_found(room: Room) -> None:
    room.history.seen[PLACE] = [b"c", b"a", b"b"]
    room.history.batches[0].offset, room.history.batches[1].offset = 1, 0
    assert room.found(room.stored((0, 0, [b"c"]), (1, 0, [b"a", b"b"]))) == [
        "t-0: batch 1 of p0 for t-0 is at 0, before batch 0 of p0 for t-0 at 1"
    ]


def test_consumed_records_missing_from_the_log_and_unconsumed_ones_are_found(room: Room) -> None:
    log = room.stored(*GOOD)
    room.history.seen[PLACE] = [b"a", b"z"]
    assert room.found(log) == ["t-0: consumers got b'z' at 1, but the log has b'b'"]
    room.history.seen[PLACE] = [b"a"]
    assert room.found(log) == ["t-0 ends at 3, but consumers got only 1 records"]


def test_consumers_that_got_different_records_are_found(room: Room) -> None:
    room.history.saw("c0", PLACE, 0, [b"a", b"b"])
    room.history.saw("c1", PLACE, 1, [b"x 1"])
    room.history.saw("c1", PLACE, 9, [b"y"])
    assert [violation.split(": ", 1)[1] for violation in room.history.violations] == [
        "c1 got x at 1 of t-0; an earlier answer had b",
        "c1 got t-0 from 9 on; no consumer has got 3 yet",
    ]


def test_a_damaged_file_and_a_missing_one_are_reported(room: Room) -> None:
    room.stored(*GOOD)
    file = room.disk.open("/disk1/b1/t-0/00000000000000000000.log")
    data = bytearray(file.pread(1000, 0))
    file.truncate(0)
    data[-1] ^= 1
    file.append([data])
    with pytest.raises(ValueError, match=r"the batch at 2 is damaged"):
        read_log(room.disk, "/disk1/b1/t-0", "b1")
    with pytest.raises(ValueError, match="t-0 is not on b9"):
        read_log(room.disk, "/disk1/b9/t-0", "b9")
