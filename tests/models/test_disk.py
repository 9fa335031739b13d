"""The simulated disk keeps what was synced and may lose the rest, as a real one would."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from tests.models.disk import SimDisk


def make_disk(seed: int = 1, **options: int) -> SimDisk:
    disk = SimDisk(random.Random(seed), lambda: 0, **options)
    disk.make_directory("/data")
    disk.fsync_directory("/")
    return disk


def test_a_killed_process_leaves_everything_it_wrote() -> None:
    disk = make_disk()
    file = disk.open("/data/log", create=True)
    file.append([b"one", b"two"])
    disk.kill_process()
    assert disk.read("/data/log") == b"onetwo"
    with pytest.raises(OSError, match="closed"):
        file.append([b"three"])


def after_power_loss(seed: int, unsynced: bytes) -> bytes:
    """The bytes that a power loss leaves of `unsynced`, which was appended to a file with synced content."""
    disk = make_disk(seed)
    file = disk.open("/data/log", create=True)
    disk.fsync_directory("/data")
    file.append([b"synced"])
    file.fsync()
    file.append([unsynced])
    disk.lose_power()
    data = disk.read("/data/log")
    assert data.startswith(b"synced")
    return data.removeprefix(b"synced")


def test_a_power_loss_keeps_what_was_synced_and_tears_the_rest() -> None:
    outcomes = {after_power_loss(seed, b"abc") for seed in range(200)}
    assert outcomes >= {b"", b"a", b"ab", b"abc", b"ab\0", b"a\0\0", b"\0\0\0"}
    garbage = [left for left in outcomes if left.replace(b"\0", b"").strip(b"abc")]
    assert len(garbage) > 5
    assert all(len(left) <= 3 for left in outcomes)


def test_a_power_loss_may_leave_a_hole_in_what_was_not_synced() -> None:
    page = bytes(4096)
    left = {after_power_loss(seed, b"a" * 10_000) for seed in range(50)}
    assert any(page in data and data.endswith(b"a") and len(data) == 10_000 for data in left)


def test_an_unsynced_name_may_be_lost_and_a_synced_one_is_not() -> None:
    found = set()
    for seed in range(20):
        disk = make_disk(seed)
        disk.open("/data/kept", create=True)
        disk.fsync_directory("/data")
        disk.open("/data/fresh", create=True)
        disk.lose_power()
        found.add(tuple(disk.list("/data")))
    assert found == {("kept",), ("fresh", "kept")}


def test_a_directory_sync_keeps_the_names_in_that_directory_only() -> None:
    found = set()
    for seed in range(20):
        disk = make_disk(seed)
        for directory in ("/data/a", "/data/b"):
            disk.make_directory(directory)
        disk.fsync_directory("/data")
        for path in ("/data/a/1", "/data/b/1", "/data/a/2"):
            disk.open(path, create=True).fsync()
        disk.fsync_directory("/data/b")
        disk.lose_power()
        assert disk.list("/data/b") == ["1"]
        found.add(tuple(disk.list("/data/a")))
    assert found == {(), ("1",), ("1", "2")}


def test_a_synced_file_is_lost_with_the_name_of_its_directory() -> None:
    found = set()
    for seed in range(20):
        disk = make_disk(seed)
        disk.make_directory("/data/t-0")
        disk.open("/data/t-0/log", create=True).fsync()
        disk.fsync_directory("/data/t-0")
        disk.lose_power()
        assert disk.exists("/data/t-0/log") == disk.exists("/data/t-0")
        found.add(disk.exists("/data/t-0"))
    assert found == {True, False}


def test_a_power_loss_keeps_an_unsynced_rename_as_a_whole_or_undoes_it() -> None:
    found = set()
    for seed in range(20):
        disk = make_disk(seed)
        disk.make_directory("/data/t-0")
        disk.open("/data/t-0/log", create=True).fsync()
        disk.fsync_directory("/data/t-0")
        disk.fsync_directory("/data")
        disk.rename("/data/t-0", "/data/gone")
        disk.lose_power()
        found.add(tuple(disk.list("/data")))
        assert disk.exists("/data/t-0/log") != disk.exists("/data/gone/log")
    assert found == {("t-0",), ("gone",)}


def test_a_removed_file_may_be_back_after_a_power_loss() -> None:
    found = set()
    for seed in range(20):
        disk = make_disk(seed)
        disk.open("/data/log", create=True).append([b"x"])
        disk.fsync_directory("/data")
        disk.remove("/data/log")
        disk.lose_power()
        found.add(disk.exists("/data/log"))
    assert found == {True, False}


def test_restoring_a_snapshot_brings_the_former_content_back() -> None:
    disk = make_disk()
    file = disk.open("/data/log", create=True)
    file.append([b"old"])
    before = disk.snapshot()
    file.append([b"new"])
    disk.make_directory("/data/more")
    disk.remove("/data/log")
    disk.restore(before)
    with pytest.raises(OSError, match="closed"):
        file.append([b"x"])
    for _ in range(2):
        assert disk.list("/data") == ["log"]
        assert disk.read("/data/log") == b"old"
        disk.lose_power()
    disk.open("/data/log").append([b"er"])
    disk.restore(before)
    assert disk.read("/data/log") == b"old"


def test_an_unsynced_truncation_may_be_undone() -> None:
    outcomes = set()
    for seed in range(40):
        disk = make_disk(seed)
        file = disk.open("/data/log", create=True)
        disk.fsync_directory("/data")
        file.append([b"abcdef"])
        file.fsync()
        file.truncate(2)
        file.append([b"XY"])
        disk.lose_power()
        outcomes.add(disk.read("/data/log"))
    assert b"abcdef" in outcomes
    assert b"abXY" in outcomes
    assert all(data == b"abcdef" or (data.startswith(b"ab") and len(data) <= 4) for data in outcomes)


def test_a_full_disk_refuses_the_write_after_taking_what_fits() -> None:
    disk = make_disk(capacity=4)
    file = disk.open("/data/log", create=True)
    with pytest.raises(OSError) as failure:
        file.append([b"abcdef"])
    assert failure.value.errno == errno.ENOSPC
    assert disk.read("/data/log") == b"abcd"


def test_a_failing_directory_answers_eio_until_it_is_mended() -> None:
    disk = make_disk()
    disk.open("/data/log", create=True)
    disk.fail("/data")
    with pytest.raises(OSError) as failure:
        disk.open("/data/log")
    assert failure.value.errno == errno.EIO
    disk.mend("/data")
    disk.open("/data/log").append([b"well"])


def test_a_directory_that_fails_to_sync_takes_writes_that_a_power_loss_may_lose() -> None:
    left = set()
    for seed in range(50):
        disk = make_disk(seed)
        file = disk.open("/data/log", create=True)
        disk.fsync_directory("/data")
        disk.fail_syncs("/data")
        file.append([b"abc"])
        with pytest.raises(OSError) as failure:
            file.fsync()
        assert failure.value.errno == errno.EIO
        assert disk.is_failing
        assert disk.read("/data/log") == b"abc"
        disk.lose_power()
        left.add(disk.read("/data/log"))
    assert {b"", b"abc"} < left


def test_files_can_be_synced_when_their_directory_is_mended() -> None:
    disk = make_disk()
    file = disk.open("/data/log", create=True)
    disk.fsync_directory("/data")
    disk.fail_syncs("/data")
    file.append([b"abc"])
    disk.mend("/data")
    assert not disk.is_failing
    file.fsync()
    disk.lose_power()
    assert disk.read("/data/log") == b"abc"


def test_a_read_only_directory_is_read_but_not_changed() -> None:
    disk = make_disk()
    file = disk.open("/data/log", create=True)
    file.append([b"x"])
    disk.make_read_only("/data")
    changes: list[Callable[[], object]] = [
        lambda: file.append([b"y"]),
        file.fsync,
        lambda: disk.open("/data/other", create=True),
        lambda: disk.rename("/data/log", "/data/gone"),
        lambda: disk.remove("/data/log"),
        lambda: disk.make_directory("/data/more"),
    ]
    for change in changes:
        with pytest.raises(OSError, match="Read-only") as failure:
            change()
        assert failure.value.errno == errno.EROFS
    assert disk.open("/data/log").pread(10, 0) == b"x"
    disk.mend("/data")
    file.append([b"y"])
    assert disk.read("/data/log") == b"xy"


def test_files_move_with_their_directory() -> None:
    disk = make_disk()
    disk.make_directory("/data/t-0")
    disk.open("/data/t-0/log", create=True).append([b"x"])
    disk.rename("/data/t-0", "/data/t-0.gone-delete")
    assert disk.list("/data") == ["t-0.gone-delete"]
    assert disk.read("/data/t-0.gone-delete/log") == b"x"
    disk.remove_directory("/data/t-0.gone-delete")
    assert disk.list("/data") == []


def test_a_strike_fails_the_chosen_change_and_all_later_io() -> None:
    disk = make_disk()
    ends: list[str] = []
    file = disk.open("/data/log", create=True)
    disk.strike(2, lambda: ends.append("struck"))
    file.append([b"one"])
    file.append([b"two"])
    with pytest.raises(OSError, match="the machine has ended"):
        file.append([b"three"])
    with pytest.raises(OSError, match="the machine has ended"):
        file.fsync()
    with pytest.raises(OSError, match="the machine has ended"):
        disk.remove("/data/log")
    assert ends == ["struck"]
    disk.switch_on()
    assert disk.read("/data/log") == b"onetwo"


def test_a_strike_can_be_cancelled() -> None:
    disk = make_disk()
    disk.strike(0, lambda: pytest.fail("the machine was struck"))
    disk.spare()
    disk.make_directory("/data/more")


def test_a_bounded_disk_can_get_its_capacity_back() -> None:
    disk = make_disk()
    disk.make_directory("/disk1")
    file = disk.open("/disk1/a", create=True)
    file.append([b"1234"])
    disk.leave_room(2)
    assert (disk.room(), disk.is_bounded) == (2, True)
    with pytest.raises(OSError, match="no space left"):
        file.append([b"5678"])
    disk.leave_room(None)
    file.append([b"78"])
    assert (file.pread(10, 0), disk.is_bounded) == (b"12345678", False)


def test_contents_are_those_written_before_the_disk_changed_them() -> None:
    disk = make_disk()
    file = disk.open("/data/1.log", create=True)
    file.append([b"written"])
    disk.rot("/data/1.log", 0, 0)
    disk.cut("/data/1.log", 3)
    assert disk.read("/data/1.log") == b"vri"
    assert disk.contents("/data", ".log") == [b"written"]
    file.append([b"!"])
    assert disk.contents("/data", ".log") == [b"vri!"]


def test_a_power_loss_does_not_hide_that_the_disk_has_shortened_a_file() -> None:
    """What processes wrote durably stays known; what was not durable is lost to everybody."""
    disk = make_disk()
    file = disk.open("/data/1.log", create=True)
    file.append([b"durable "])
    file.fsync()
    disk.fsync_directory("/data")
    file.append([b"not durable"])
    disk.cut("/data/1.log", 0)
    disk.lose_power()
    assert disk.read("/data/1.log") == b""
    assert disk.is_rotten("/data/1.log")
    assert disk.contents("/data", ".log") == [b"durable "]


def test_a_file_is_rotten_until_it_is_replaced_or_truncated_before_the_damage() -> None:
    disk = make_disk()
    file = disk.open("/data/1.log", create=True)
    file.append([b"written"])
    assert not disk.is_rotten("/data/1.log")
    disk.rot("/data/1.log", 3, 0)
    file.truncate(5)
    file.append([b"more"])
    assert disk.is_rotten("/data/1.log")
    assert disk.contents("/data", ".log") == [b"writtmore"]
    file.truncate(3)
    file.append([b"t"])
    assert not disk.is_rotten("/data/1.log")
    disk.rot("/data/1.log", 3, 0)
    disk.write_atomically("/data/1.log", b"writ")
    assert not disk.is_rotten("/data/1.log")


def test_a_changed_file_stays_changed_while_its_device_is_not_mounted() -> None:
    disk = make_disk()
    disk.open("/data/log", create=True).append([b"written"])
    disk.cut("/data/log", 3)
    disk.unmount("/data")
    assert disk.is_rotten("/data/log")
    disk.mount("/data")
    assert disk.is_rotten("/data/log")
    disk.remove("/data/log")
    assert not disk.is_rotten("/data/log")
