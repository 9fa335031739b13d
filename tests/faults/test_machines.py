"""A broker's machine has the clock, the disk and the power supply that the test gives it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from holdfast_log.broker.tools.machine import HookedMachine, Machine
from tests.faults import machines

HOUR_S = 3600.0
_CHILD = "the_child"


def run_on(machine: Machine, program: str) -> str:
    """Run a program as a broker would be run on the machine, and return what it prints."""
    directory = machine.log_dir.parent
    (directory / f"{_CHILD}.py").write_text(textwrap.dedent(program))
    path = os.pathsep.join([str(machines.CHECKOUT), str(directory)])
    ended = subprocess.run(
        [sys.executable, "-P", *machine.python_arguments, "-m", _CHILD, str(machine.log_dir)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return ended.stdout


@pytest.fixture
def machine(tmp_path: Path) -> HookedMachine:
    made = HookedMachine(tmp_path / "machine")
    made.log_dir.mkdir()
    return made


def test_the_clock_of_a_machine_is_as_far_ahead_as_it_was_set(machine: HookedMachine) -> None:
    program = """
        import subprocess, time
        true_s = float(subprocess.run(["date", "+%s"], capture_output=True, check=True).stdout)
        print(round((time.time() - true_s) / 100), round((time.time_ns() / 1e9 - true_s) / 100))
    """
    assert run_on(machine, program) == "0 0\n"
    machine.set_clock(-HOUR_S)
    assert run_on(machine, program) == "-36 -36\n"


def test_a_full_disk_refuses_writes_until_there_is_room(machine: HookedMachine) -> None:
    program = """
        import sys
        from holdfast_log.broker.log.disk import OsDisk
        try:
            OsDisk().open(sys.argv[1] + "/file", create=True).append([b"record"])
        except OSError as error:
            print(error.errno)
    """
    machine.fill_disk()
    assert run_on(machine, program) == f"{errno.ENOSPC}\n"
    machine.make_room()
    assert run_on(machine, program) == ""


WRITE_AND_SYNC = """
    import sys
    from holdfast_log.broker.log.disk import OsDisk
    disk, place = OsDisk(), sys.argv[1]
    synced = disk.open(place + "/synced", create=True)
    synced.append([b"durable"])
    synced.fsync()
    synced.append([b", not durable"])
    disk.open(place + "/unsynced", create=True).append([b"not durable"])
    disk.write_atomically(place + "/whole", b"durable")
"""


def test_a_power_loss_removes_what_is_not_synced_and_begins_another_boot(machine: HookedMachine) -> None:
    run_on(machine, WRITE_AND_SYNC)
    boot = run_on(machine, "from holdfast_log.broker.process.session_file import boot_id; print(boot_id())")
    machine.lose_power()
    content = {path.name: path.read_bytes() for path in machine.log_dir.iterdir()}
    assert content.pop("unsynced", b"") == b""
    assert content == {"synced": b"durable", "whole": b"durable"}
    assert (
        run_on(machine, "from holdfast_log.broker.process.session_file import boot_id; print(boot_id())")
        != boot
    )


def test_an_emptied_disk_has_nothing_left(machine: HookedMachine) -> None:
    (machine.log_dir / "t-0").mkdir()
    (machine.log_dir / "t-0" / "00.log").write_bytes(b"record")
    machine.empty_disk()
    assert list(machine.log_dir.iterdir()) == []
