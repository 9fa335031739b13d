"""The ledger: runs that are killed between any two operations, or overlap, lose and repeat nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

import pytest

from holdfast_log.pipeline.jobs.ledger import REPLACES, Ledger, SupersededError
from holdfast_log.pipeline.jobs.storage import LocalStorage, Storage

HOME = Path(__file__).parents[3]


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class FakeStorage:
    """Files in memory. The process is killed just before the operation with number `dies_at`."""

    held: dict[str, bytes] = field(default_factory=dict)
    dies_at: int | None = None
    operations: int = 0

    def _change(self) -> None:
        if self.operations == self.dies_at:
            raise KilledError
        self.operations += 1

    def names(self, folder: str) -> Sequence[str]:
        below = [path[len(folder) + 1 :] for path in self.held if path.startswith(folder + "/")]
        return sorted({path.split("/")[0] for path in below})

    def files(self, folder: str) -> Sequence[str]:
        return sorted(path for path in self.held if path.startswith(folder + "/"))

    def read(self, path: str) -> bytes:
        if path not in self.held:
            raise FileNotFoundError(path)
        return self.held[path]

    def size(self, path: str) -> int:
        return len(self.held[path])

    def write(self, path: str, content: bytes) -> None:
        self._change()
        self.held[path] = b""
        self._change()
        self.held[path] = content

    def sync(self, path: str) -> None:
        self._change()
        if path not in self.held:
            raise FileNotFoundError(path)

    def publish(self, path: str, name: str) -> bool:
        self._change()
        if path not in self.held:
            raise FileNotFoundError(path)
        if name in self.held:
            return False
        self.held[name] = self.held[path]
        self._change()
        self.held.pop(path, None)
        return True

    def remove(self, path: str) -> None:
        for found in [found for found in self.held if found == path or found.startswith(path + "/")]:
            self._change()
            self.held.pop(found, None)


LOG = [f"record {offset}" for offset in range(10)]


def load(storage: Storage, run: str, token: int, end: int) -> None:
    """A whole run of a job: copies the records up to `end`, three in a file."""
    ledger = Ledger(storage, run, token)
    ledger.claim()
    ledger.sweep()
    copy(storage, ledger, end)


def copy(storage: Storage, ledger: Ledger, end: int) -> None:
    last = ledger.last_result()
    start = last.offsets["t"]["0"] if last else 0
    files = []
    for offset in range(start, end, 3):
        path = f"{ledger.folder()}/part-{offset}"
        storage.write(path, json.dumps(LOG[offset : min(end, offset + 3)]).encode())
        files.append(path)
    ledger.finish("load", {"t": {"0": end}}, files)


def output(storage: Storage) -> list[str]:
    """All records in the files that the ledger names."""
    results = Ledger(storage, "reader", 0).results()
    return [record for step in results for path in step.files for record in json.loads(storage.read(path))]


def test_runs_add_what_is_new() -> None:
    storage = FakeStorage()

    load(storage, "a", 1, 4)
    load(storage, "b", 2, 10)

    assert output(storage) == LOG


def test_a_run_that_is_killed_between_any_two_operations_is_completed_by_the_next() -> None:
    for dies_at in count():
        storage = FakeStorage()
        load(storage, "first", 1, 4)
        storage.dies_at, storage.operations = dies_at, 0
        try:
            load(storage, "killed", 2, 8)
            was_killed = False
        except KilledError:
            was_killed = True
        seen = output(storage)
        assert seen in (LOG[:4], LOG[:8]), f"killed before operation {dies_at}"
        storage.dies_at = None

        load(storage, "next", 3, 10)

        assert output(storage) == LOG, f"killed before operation {dies_at}"
        named = {path for step in Ledger(storage, "reader", 0).results() for path in step.files}
        assert set(storage.files("data")) == named, "the next run removes what no result names"
        if not was_killed:
            assert dies_at > 10
            return


def test_a_run_that_is_killed_twice_in_a_row_loses_nothing() -> None:
    for first in range(0, 16, 3):
        for second in range(18):
            storage = FakeStorage()
            for token, dies_at in ((1, first), (2, second)):
                storage.dies_at, storage.operations = dies_at, 0
                with suppress(KilledError):
                    load(storage, f"run{token}", token, 6)
            storage.dies_at = None

            load(storage, "last", 3, 10)

            assert output(storage) == LOG, (first, second)


def test_a_run_that_wakes_after_its_successor_began_is_refused_and_told_by_whom() -> None:
    storage = FakeStorage()
    sleeper = Ledger(storage, "sleeper", 1)
    sleeper.claim()
    sleeper.sweep()
    storage.write(f"{sleeper.folder()}/part-0", json.dumps(LOG[:5]).encode())

    successor = Ledger(storage, "successor", 2)
    successor.claim()
    successor.sweep()
    with pytest.raises(SupersededError, match=r"run successor has begun meanwhile, with the lease token 2"):
        sleeper.finish("load", {"t": {"0": 5}}, [f"{sleeper.folder()}/part-0"])
    copy(storage, successor, 10)

    assert output(storage) == LOG
    with pytest.raises(SupersededError):
        Ledger(storage, "late", 1).claim()


def test_a_run_that_finishes_just_before_its_successor_claims_counts() -> None:
    storage = FakeStorage()
    first = Ledger(storage, "first", 1)
    first.claim()
    copy(storage, first, 5)

    load(storage, "second", 2, 10)

    assert output(storage) == LOG


def renew(storage: Storage, run: str, token: int) -> None:
    """A whole run of a job whose output replaces what was before."""
    ledger = Ledger(storage, run, token)
    ledger.claim()
    ledger.sweep()
    path = f"{ledger.folder()}/part"
    storage.write(path, json.dumps([run]).encode())
    ledger.finish("snapshot", {"t": {"0": token}}, [path], {REPLACES: True})


def newest(storage: Storage) -> tuple[str, list[str]]:
    """The run of the last result, and what its files hold."""
    step = Ledger(storage, "reader", 0).results()[-1]
    return step.run, [record for path in step.files for record in json.loads(storage.read(path))]


def test_the_ledger_and_the_files_of_tables_that_replace_each_other_do_not_grow() -> None:
    storage = FakeStorage()

    for number in range(1, 30):
        renew(storage, f"run{number}", number)

    assert newest(storage) == ("run29", ["run29"])
    assert len(storage.names("_holdfast")) <= 6
    assert storage.names("data") == ["run=run27", "run=run28", "run=run29"]


class InterruptedStorage(FakeStorage):
    """Calls a function just before the operation with number `stops_at`, which may be one that only reads."""

    def __init__(self, stops_at: int, others: Callable[[], None], held: dict[str, bytes]) -> None:
        super().__init__(held)
        self._stops_at, self._others = stops_at, others

    def _change(self) -> None:
        if self.operations == self._stops_at:
            self.operations += 1
            self._others()
        else:
            self.operations += 1

    def names(self, folder: str) -> Sequence[str]:
        self._change()
        return super().names(folder)

    def read(self, path: str) -> bytes:
        self._change()
        return super().read(path)


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("others", [1, 2, 3, 6])
def test_a_run_that_is_paused_while_others_begin_is_refused_and_takes_nothing_from_them(
    before: int, others: int
) -> None:
    """The last of the others has written its file and not yet its result when the paused run continues."""
    for stops_at in count():
        held = FakeStorage()
        for number in range(before):
            renew(held, f"run{number}", number)
        other, had_result = Ledger(held, "other", 50), False

        def take_over(held: FakeStorage = held, other: Ledger = other) -> None:
            nonlocal had_result
            had_result = any(step.run == "paused" for step in other.results())
            for number in range(others - 1):
                renew(held, f"other{number}", 10 + number)
            other.claim()
            other.sweep()
            held.write(f"{other.folder()}/part", json.dumps(["other"]).encode())

        storage = InterruptedStorage(stops_at, take_over, held.held)
        was_refused = False
        try:
            renew(storage, "paused", 5)
        except SupersededError:
            was_refused = True
        if storage.operations <= stops_at:
            assert stops_at > 10
            return

        other.finish("snapshot", {"t": {"0": 1}}, [f"{other.folder()}/part"], {REPLACES: True})
        assert was_refused or had_result, f"paused before operation {stops_at}"
        assert newest(held) == ("other", ["other"]), f"paused before operation {stops_at}"
        renew(held, "last", 99)
        assert newest(held) == ("last", ["last"])


def test_local_files_are_published_once(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)

    load(storage, "a", 1, 4)
    load(storage, "b", 2, 10)
    storage.write("x", b"1")

    assert output(storage) == LOG
    assert not storage.publish("x", "_holdfast/00000001.json")
    assert storage.names("_holdfast") == ["00000001.json", "00000002.json", "00000003.json", "00000004.json"]
    assert storage.size("x") == 1
    storage.remove("data")
    storage.remove("x")
    assert storage.names("data") == []


def test_processes_that_are_killed_at_random_operations_lose_and_repeat_nothing(tmp_path: Path) -> None:
    random = Random(14)
    end, kills = 200, 0
    for token in range(1, 1_000):
        operations = random.randrange(1, 40) if token < 12 else None
        if has_ended_after(operations, tmp_path, token, end):
            break
        kills += 1

    reader = Ledger(LocalStorage(tmp_path), "reader", 0)
    files = [path for step in reader.results() for path in step.files]
    copied = [number for path in files for number in json.loads((tmp_path / path).read_bytes())]
    assert copied == list(range(end))
    last = reader.last_result()
    assert last is not None and last.offsets == {"t": {"0": end}}
    assert kills >= 5


def has_ended_after(operations: int | None, folder: Path, token: int, end: int) -> bool:
    """Let a process make so many operations, and kill it before the next one; False if that was needed."""
    command = [sys.executable, "-m", "tests.pipeline.jobs.ledger_runs", str(folder), str(token), str(end)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=HOME, stdin=pipe, stdout=pipe, bufsize=0) as process:
        assert process.stdin is not None and process.stdout is not None
        for number in count():
            line = process.stdout.readline()
            assert line, "the process has failed"
            if line == b"done\n":
                return True
            if number == operations:
                process.kill()
                return False
            process.stdin.write(b"\n")
    return False
