"""What each file of tests costs: a plugin that notes it, and a program that adds it up.

    python -m pytest -p tests.cost -n 3 --dist worksteal tests
    python -m tests.cost var/cost/*.jsonl

The first writes a line for each test to `var/cost`, or to the directory `HOLDFAST_COST`: its processor time
in seconds, with that of all processes that it has started and that its shared servers used meanwhile, and how
long it took. The second prints both for each file, costliest first. Processor time hardly depends on what
else the machine does.

Each process of tests is in a control group of its own for that (version 1 of cgroups, `cpuacct`), below
`HOLDFAST_COST_GROUPS`; only root may make one. Without, the processor time is that of the process and of its
children that have ended, without brokers that live on and those of the nursery (`tests.forked_brokers`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_GROUPS = Path(os.environ.get("HOLDFAST_COST_GROUPS", "/sys/fs/cgroup/cpuacct/holdfast-tests"))
_DIRECTORY = Path(os.environ.get("HOLDFAST_COST", Path(__file__).parents[1] / "var" / "cost"))


def _own_group(name: str) -> Callable[[], float]:
    """Move this process, with all that it will start, into a control group. Returns a function that returns
    the group's processor time in seconds. Raises `OSError`."""
    group = _GROUPS / name
    group.mkdir(parents=True, exist_ok=True)
    for each in _GROUPS.iterdir():
        if not Path("/proc", each.name.partition("-")[0]).exists():
            with contextlib.suppress(OSError):  # What that process has started may live on.
                each.rmdir()
    usage = group / "cpuacct.usage"
    usage.read_text()
    (group / "cgroup.procs").write_text(str(os.getpid()))
    return lambda: int(usage.read_text()) / 1e9


def _own_times() -> float:
    return sum(os.times()[:4])


class _Costs:
    """Notes what each test costs. What passes between two tests is part of the second."""

    def __init__(self, worker: str) -> None:
        _DIRECTORY.mkdir(parents=True, exist_ok=True)
        self._file = open(_DIRECTORY / f"{worker}.jsonl", "w", buffering=1)  # noqa: SIM115
        try:
            self._processor_s = _own_group(f"{os.getpid()}-{worker}")
        except OSError:
            self._processor_s = _own_times
        self._before = self._processor_s(), time.monotonic()

    def note(self, name: str) -> None:
        now = self._processor_s(), time.monotonic()
        self._file.write(json.dumps([name, now[0] - self._before[0], now[1] - self._before[1]]) + "\n")
        self._before = now

    def pytest_collection_finish(self) -> None:
        self.note("collecting")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        yield
        self.note(item.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.note("ending")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Costs(os.environ.get("PYTEST_XDIST_WORKER", "main")))


@dataclass(slots=True)
class Cost:
    """What the tests of a file cost together."""

    tests: int = 0
    processor_s: float = 0.0
    wall_s: float = 0.0


def added_up(lines: Iterable[str]) -> dict[str, Cost]:
    """The cost of each file, costliest first."""
    costs: dict[str, Cost] = {}
    for line in lines:
        name, processor_s, wall_s = json.loads(line)
        cost = costs.setdefault(name.partition("::")[0], Cost())
        cost.tests += 1
        cost.processor_s += processor_s
        cost.wall_s += wall_s
    return dict(sorted(costs.items(), key=lambda item: -item[1].processor_s))


def main() -> None:
    costs = added_up(line for path in sys.argv[1:] for line in Path(path).read_text().splitlines())
    costs["in all"] = Cost(
        sum(each.tests for each in costs.values()),
        sum(each.processor_s for each in costs.values()),
        sum(each.wall_s for each in costs.values()),
    )
    print(f"{'tests':>6} {'processor s':>12} {'wall s':>8}")
    for name, cost in costs.items():
        print(f"{cost.tests:6} {cost.processor_s:12.1f} {cost.wall_s:8.1f}  {name}")


if __name__ == "__main__":
    main()
