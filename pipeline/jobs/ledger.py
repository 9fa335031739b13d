"""What a job has done, kept beside its output: one small file for each step, numbered without gaps.

A step counts once its file has its final name. Two processes cannot publish the same number, so the ledger
alone decides which of two runs continues, whatever became of their leases:

1. A run publishes a claim. From then on no earlier run can publish the number that it had planned for.
2. It removes what earlier runs left behind, and reads where to continue. Neither can change any more.
3. It writes its output under a name that no other run uses.
4. It publishes a result with the number after its claim: offsets and files, in one atomic step.

A run that is killed leaves a claim without a result, and perhaps files that no result names. The next run
takes the next number and removes those files. The token of the run's lease (docs/tokens.md) is in every step:
a run whose token is older than the newest in the ledger is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast_log.pipeline.jobs.storage import Storage

STEPS = "_holdfast"
DATA = "data"
_FOLDER, _TEMPORARY = "run=", ".new"
_WRITES_MAX = 3


class SupersededError(Exception):
    """Another run of the same job has begun since: this one must not write its result."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One entry of the ledger. `offsets` are where the next run continues, by topic and partition.

    `kind` is "claim", or what the run has finished. `files` are the paths that a result adds to the output.
    """

    number: int
    run: str
    token: int
    kind: str
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    files: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


CLAIM = "claim"
REPLACES = "replaces"
"""In the details of a result: its files are the whole output, instead of those before."""


class Ledger:
    """The ledger of one job's output, for one run of it. `token` is that of the lease which the run holds."""

    def __init__(self, storage: Storage, run: str, token: int) -> None:
        self._storage = storage
        self._run = run
        self._token = token
        self._claim: LedgerEntry | None = None

    def results(self) -> list[LedgerEntry]:
        """All results, oldest first."""
        return [step for step in self._steps() if step.kind != CLAIM]

    def last_result(self) -> LedgerEntry | None:
        """The newest result; None before the first."""
        for number in reversed(self._numbers()):
            step = self._read(number)
            if step is not None and step.kind != CLAIM:
                return step
        return None

    def newest(self) -> LedgerEntry | None:
        """The newest entry, a claim or a result; None in an empty ledger."""
        numbers = self._numbers()
        return self._read(numbers[-1]) if numbers else None

    def claim(self) -> None:
        """Keep earlier runs from finishing. Raises `SupersededError` if a later one has begun."""
        while True:
            numbers = self._numbers()
            newest = self._read(numbers[-1]) if numbers else None
            if numbers and newest is None:
                continue  # Later runs have swept it meanwhile.
            if newest is not None and newest.token > self._token:
                raise SupersededError(_superseded_by(newest))
            step = LedgerEntry(numbers[-1] + 1 if numbers else 1, self._run, self._token, CLAIM)
            if self._publish(step):
                self._must_count(step)
                self._claim = step
                return

    def sweep(self) -> list[str]:
        """Remove the output of runs that ended without a result. Returns the folders. Needs the claim.

        Of results that replace what was before, the last two are kept: somebody may still read the older one.
        Entries before them are removed too, the oldest first, so that the ledger does not grow for ever.
        """
        if self._claim is None:
            raise RuntimeError("the run has not claimed the output")
        steps = self._steps()
        results = _not_replaced([step for step in steps if step.kind != CLAIM])
        kept = {step.run for step in results}
        # Later runs may have begun since, if this one was paused: their folders must not be touched.
        ended = {step.run for step in steps if step.number < self._claim.number} - kept
        there = map(_run_of, self._storage.names(DATA))
        leftovers = [f"{DATA}/{_FOLDER}{run}" for run in there if run in ended - {self._run}]
        for folder in leftovers:
            self._storage.remove(folder)
        for name in self._storage.names(STEPS):
            if name.endswith(_TEMPORARY) and name != self._temporary():
                self._storage.remove(f"{STEPS}/{name}")
        if results and results[0].details.get(REPLACES):
            for number in self._numbers():
                if number < results[0].number:
                    self._storage.remove(_name(number))
        return leftovers

    def folder(self) -> str:
        """The folder for this run's output, which no other run uses."""
        return f"{DATA}/{_FOLDER}{self._run}"

    def finish(
        self,
        kind: str,
        offsets: Mapping[str, Mapping[str, int]],
        files: Sequence[str] = (),
        details: Mapping[str, Any] | None = None,
    ) -> LedgerEntry:
        """Publish this run's result, and with it its files and offsets. Another result may follow.

        Raises `SupersededError` if a later run has claimed the output since; then nothing of this one counts.
        """
        if self._claim is None:
            raise RuntimeError("the run has not claimed the output")
        try:
            for path in files:
                self._storage.sync(path)
        except FileNotFoundError:  # A later run has swept the file.
            raise SupersededError(_superseded_by(self.newest())) from None
        step = LedgerEntry(
            self._claim.number + 1, self._run, self._token, kind, offsets, tuple(files), details or {}
        )
        if not self._publish(step):
            raise SupersededError(_superseded_by(self._read(step.number)))
        self._must_count(step)
        self._claim = step
        return step

    def check(self) -> None:
        """Raise `SupersededError` if a later run has claimed the output since this one did."""
        newest = self.newest()
        if self._claim is not None and (newest is None or newest.number > self._claim.number):
            raise SupersededError(_superseded_by(newest))

    def _must_count(self, step: LedgerEntry) -> None:
        """Raise `SupersededError` if `step` has the number of an entry that was already swept.

        Sweeps remove the oldest entries first. So beside a swept number, the entry before it is gone, or, if
        there was none before it, the one after it, although later ones exist.
        """
        numbers = self._numbers()
        has_later = numbers[-1] > step.number
        misses_one_before = step.number > 1 and step.number - 1 not in numbers
        if has_later and (misses_one_before or step.number + 1 not in numbers):
            raise SupersededError(_superseded_by(self.newest()))

    def _publish(self, step: LedgerEntry) -> bool:
        content = {
            "number": step.number,
            "run": step.run,
            "token": step.token,
            "kind": step.kind,
            "offsets": step.offsets,
            "files": list(step.files),
            "details": step.details,
        }
        path = f"{STEPS}/{self._temporary()}"
        for _ in range(_WRITES_MAX):
            self._storage.write(path, json.dumps(content, indent=1).encode() + b"\n")
            with suppress(
                FileNotFoundError
            ):  # Another run has swept the file: an earlier one that was paused.
                return self._storage.publish(path, _name(step.number))
        return False

    def _temporary(self) -> str:
        return f"{self._run}{_TEMPORARY}"

    def _numbers(self) -> list[int]:
        names = self._storage.names(STEPS)
        return sorted(int(name.removesuffix(".json")) for name in names if name.endswith(".json"))

    def _steps(self) -> list[LedgerEntry]:
        found = [self._read(number) for number in self._numbers()]
        return [step for step in found if step is not None]

    def _read(self, number: int) -> LedgerEntry | None:
        """An entry; None if a later run has swept it."""
        try:
            return LedgerEntry(**json.loads(self._storage.read(_name(number))))
        except FileNotFoundError:
            return None


def _not_replaced(results: list[LedgerEntry]) -> list[LedgerEntry]:
    replacing = [index for index, step in enumerate(results) if step.details.get(REPLACES)]
    return results[replacing[-2] :] if len(replacing) > 1 else results


def _name(number: int) -> str:
    return f"{STEPS}/{number:08d}.json"


def _run_of(folder: str) -> str:
    return folder.removeprefix(_FOLDER)


def _superseded_by(step: LedgerEntry | None) -> str:
    who = "later runs have" if step is None else f"run {step.run} has"
    token = "" if step is None else f", with the lease token {step.token}"
    return f"{who} begun meanwhile{token}: this run is refused, and nothing of what it wrote counts"
