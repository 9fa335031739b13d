"""The simulated disk keeps what was synced and may lose the rest, as a real one would."""

from __future__ import annotations

import errno
import random

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


@pytest.mark.parametrize("seed", range(20))
def test_a_power_loss_keeps_what_was_synced_and_a_prefix_of_the_rest(seed: int) -> None:
    disk = make_disk(seed)
    file = disk.open("/data/log", create=True)
    disk.fsync_directory("/data")
    file.append([b"synced"])
    file.fsync()
    file.append([b"unsynced"])
    disk.lose_power()
    data = disk.read("/data/log")
    assert data.startswith(b"synced")
    assert b"syncedunsynced".startswith(data)


def test_power_losses_differ_and_can_take_everything_unsynced() -> None:
    outcomes = set()
    for seed in range(40):
        disk = make_disk(seed)
        file = disk.open("/data/log", create=True)
        disk.fsync_directory("/data")
        file.append([b"abc"])
        disk.lose_power()
        outcomes.add(disk.read("/data/log"))
    assert outcomes == {b"", b"a", b"ab", b"abc"}


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
    assert outcomes <= {b"abcdef", b"ab", b"abX", b"abXY"}


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
