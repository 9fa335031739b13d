"""In which order tests run when several processes run them at a time: pytest-xdist's `worksteal`.

That gives each process an equal part of the list. A process that has run its part takes the second half of
what the one with most tests left has to run. So each part begins with tests that start servers, and ends with
tests that take milliseconds, of which any number can move. Tests that share servers stay together: in two
processes they would start them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Test = TypeVar("Test")

SECONDS = {
    "tests/benchmarks/": 20,
    "tests/checker/test_check_history.py": 30,
    "tests/checker/test_planted_bugs.py": 60,
    "tests/compat/": 20,
    "tests/console/": 15,
    "tests/coordinator/zookeeper/": 40,
    "tests/faults/test_matrix.py": 100,
    "tests/hostile/": 40,
    "tests/integration/": 12,
    "tests/integration/test_client_faults.py": 40,
    "tests/integration/test_kill.py": 60,
    "tests/integration/test_procedures.py": 110,
    "tests/integration/test_upgrade.py": 80,
    "tests/packaging/": 40,
    "tests/pipeline/": 300,
    "tests/sim/test_simulation.py": 90,
    "tests/soak/": 50,
    "tests/takeovers/": 20,
    "tests/test_site.py": 30,
}
"""About how long each file takes that has a name of its own here, or that is in a folder here. `tests.cost`
measures it."""
TOGETHER = ("tests/pipeline/",)
"""Folders whose files share servers."""


def ordered(tests: Sequence[Test], path_of: Callable[[Test], str], processes: int) -> list[Test]:
    """The tests for so many processes, of which each is given an equal part of the list."""
    groups: dict[str, list[Test]] = {}
    quick: list[Test] = []
    for test in tests:
        path = path_of(test)
        if _seconds(path) == 0:
            quick.append(test)
        else:
            groups.setdefault(_group(path), []).append(test)
    parts: list[list[Test]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for name in sorted(groups, key=lambda name: (-_seconds(name), name)):
        lightest = loads.index(min(loads))
        parts[lightest] += groups[name]
        loads[lightest] += _seconds(name)
    return [test for part in _filled(parts, quick) for test in part]


def _filled(parts: Sequence[Sequence[Test]], quick: Sequence[Test]) -> list[list[Test]]:
    """The parts, each with as many quick tests behind it as make all parts equal in number."""
    left = sum(map(len, parts)) + len(quick)
    filled, begin = [], 0
    for number, part in enumerate(parts):
        size = left // (len(parts) - number)
        end = begin + max(0, size - len(part))
        filled.append([*part, *quick[begin:end]])
        left -= len(filled[-1])
        begin = end
    filled[-1] += quick[begin:]
    return filled


def _group(path: str) -> str:
    return next((folder for folder in TOGETHER if path.startswith(folder)), path)


def _seconds(path: str) -> int:
    """How long a file takes, or those of a folder together; 0 if it is quick."""
    named = [name for name in SECONDS if path.startswith(name)]
    return SECONDS[max(named, key=len)] if named else 0
