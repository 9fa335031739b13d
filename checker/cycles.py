"""Finds cycles of dependencies between transactions, and names them as Adya does.

Transaction A comes before B if B wrote behind what A has written to a list (ww), if B has read what A has
written (wr), or if A has read a list as it was before B wrote to it (rw). If there is a cycle, no order of
the transactions explains what they wrote and read.

- *G0*, dirty write: a cycle of ww alone.
- *G1c*, circular information flow: a cycle of ww and wr.
- *G-single*, read skew or lost update: a cycle with one rw.
- *G2*, anti-dependency cycle: a cycle with several rw, where there is none with one.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


class Dependency(enum.StrEnum):
    """Why one transaction comes before another."""

    WW = "ww"
    WR = "wr"
    RW = "rw"


@dataclass(frozen=True, slots=True)
class Cycle:
    """The name of an anomaly, and its transactions in order, each with the dependency to the next one."""

    anomaly: str
    steps: Sequence[tuple[int, Dependency]]


@dataclass(slots=True)
class DependencyGraph:
    """Transactions, by number, and what each comes before."""

    _edges: dict[int, dict[int, set[Dependency]]] = field(default_factory=dict)

    def add(self, before: int, after: int, dependency: Dependency) -> None:
        """Note a dependency; one of a transaction on itself counts for nothing."""
        if before != after:
            self._edges.setdefault(before, {}).setdefault(after, set()).add(dependency)

    def cycles(self) -> Iterator[Cycle]:
        """Yield one cycle for each group of transactions that depend on each other, by its worst anomaly
        first: those of G0, of G1c, then the others. A group that has a worse one is named once."""
        found: set[int] = set()
        for anomaly, kinds in (("G0", _WW), ("G1c", _WW_WR), ("", _ALL)):
            graph = self._only(kinds)
            for group in _components(graph):
                if not found & group:
                    found |= group
                    yield _named(anomaly, graph, group) if anomaly else self._with_rw(graph, group)

    def _only(self, kinds: Collection[Dependency]) -> _Graph:
        return {
            before: {after: kind for after, found in edges.items() if (kind := _first(found, kinds))}
            for before, edges in self._edges.items()
        }

    def _with_rw(self, graph: _Graph, group: set[int]) -> Cycle:
        """The cycle of a group in which every cycle has an rw."""
        forward = self._only(_WW_WR)
        for before in sorted(group):
            for after, kinds in self._edges[before].items():
                if Dependency.RW in kinds and after in group:
                    back = _path(forward, after, before, group)
                    if back is not None:
                        return Cycle("G-single", [(before, Dependency.RW), *back])
        return _named("G2", graph, group)


_Graph = Mapping[int, Mapping[int, Dependency]]
_WW = (Dependency.WW,)
_WW_WR = (Dependency.WW, Dependency.WR)
_ALL = tuple(Dependency)


def _first(found: set[Dependency], kinds: Collection[Dependency]) -> Dependency | None:
    return next((kind for kind in kinds if kind in found), None)


def _named(anomaly: str, graph: _Graph, group: set[int]) -> Cycle:
    """The shortest cycle through the first transaction of a group."""
    first = min(group)
    for after, kind in sorted(graph[first].items()):
        back = _path(graph, after, first, group) if after in group else None
        if back is not None:
            return Cycle(anomaly, [(first, kind), *back])
    raise AssertionError("every transaction of a group is in a cycle")


def _path(graph: _Graph, start: int, end: int, within: set[int]) -> list[tuple[int, Dependency]] | None:
    """A shortest path, as pairs of a transaction and the dependency to the next one."""
    came: dict[int, tuple[int, Dependency]] = {}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        if at == end:
            steps: list[tuple[int, Dependency]] = []
            while at != start:
                before, kind = came[at]
                steps.append((before, kind))
                at = before
            return steps[::-1]
        for after, kind in graph.get(at, {}).items():
            if after in within and after != start and after not in came:
                came[after] = (at, kind)
                queue.append(after)
    return None


def _components(graph: _Graph) -> Iterator[set[int]]:
    """The strongly connected components of more than one transaction (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in graph:
        if root in index:
            continue
        work: list[tuple[int, Iterator[int]]] = []
        _enter(root, graph, index, low, stack, on_stack, work)
        while work:
            at, left = work[-1]
            after = next(left, None)
            if after is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    component = _leave(at, stack, on_stack)
                    if len(component) > 1:
                        yield component
            elif after not in index:
                _enter(after, graph, index, low, stack, on_stack, work)
            elif after in on_stack:
                low[at] = min(low[at], index[after])


def _enter(
    at: int,
    graph: _Graph,
    index: dict[int, int],
    low: dict[int, int],
    stack: list[int],
    on_stack: set[int],
    work: list[tuple[int, Iterator[int]]],
) -> None:
    index[at] = low[at] = len(index)
    stack.append(at)
    on_stack.add(at)
    work.append((at, iter(graph.get(at, {}))))


def _leave(at: int, stack: list[int], on_stack: set[int]) -> set[int]:
    component: set[int] = set()
    while at not in component:
        component.add(stack.pop())
    on_stack -= component
    return component
