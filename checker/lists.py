"""Judges transactions that read lists and append to them: is there an order that explains what they saw?

A list is what readers of committed records see of a partition. The order of its elements is that of the log,
so each list gives the order of those who wrote to it, and each read its place between them.

1. *Lost.* An element of a transaction whose commit was acknowledged is not in its list.
2. *Doubled, foreign.* An element is in a list twice; one that no transaction appended.
3. *Aborted read* (Adya's G1a). A list has, or a read had, an element of a transaction that was aborted, or
   that nobody asked to commit.
4. *Torn.* A list lacks an element of a transaction of which it, or another list, has one.
5. *Intermediate read* (G1b). A read ends between two elements of one transaction.
6. *Incompatible order.* A read had other elements, or in another order, than the list has there.
7. *G0, G1c, G-single, G2.* A cycle of dependencies (`checker.cycles`).

A transaction whose outcome is unknown counts as committed if a list has one of its elements. Real time is not
looked at: a reader may lag behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from holdfast_log.checker.calls import ListRead, Outcome, TransactionCall
from holdfast_log.checker.cycles import Dependency, DependencyGraph


def list_violations(
    transactions: Sequence[TransactionCall], lists: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield each violation of the rules above. `lists` has what each list holds at the end."""
    yield from _Judge(transactions, lists).violations()


class _Judge:
    def __init__(self, transactions: Sequence[TransactionCall], lists: Mapping[str, Sequence[str]]) -> None:
        self._transactions = transactions
        self._lists = lists
        self._writer_of = {
            element: number for number, call in enumerate(transactions) for _, element in call.appends
        }
        self._stored = {element for elements in lists.values() for element in elements}

    def violations(self) -> Iterator[str]:
        for name, elements in self._lists.items():
            yield from self._strange(name, elements)
        for call in self._transactions:
            yield from self._about(call)
            for read in call.reads:
                yield from self._misread(call, read)
        yield from self._cycles()

    def _strange(self, name: str, elements: Sequence[str]) -> Iterator[str]:
        for element, count in Counter(elements).items():
            if count > 1:
                yield f"doubled: {element} is in {name} {count} times"
            if element not in self._writer_of:
                yield f"foreign: {element} is in {name}, and no transaction appended it"

    def _about(self, call: TransactionCall) -> Iterator[str]:
        missing = [element for _, element in call.appends if element not in self._stored]
        is_there = len(missing) < len(call.appends)
        if call.outcome is Outcome.REFUSED and is_there:
            yield f"aborted read: {call}, but a list has an element of it"
        elif call.outcome is Outcome.DONE and missing:
            yield f"lost: {call}, but {missing[0]} is in no list"
        elif missing and is_there:
            yield f"torn: {call}, of which {missing[0]} is in no list"

    def _misread(self, call: TransactionCall, read: ListRead) -> Iterator[str]:
        for element in read.last:
            writer = self._writer_of.get(element)
            if writer is not None and self._transactions[writer].outcome is Outcome.REFUSED:
                yield f"aborted read: {call} read {element} of {self._transactions[writer]}"
                return
        elements = self._lists[read.name]
        there = tuple(elements[max(0, read.count - len(read.last)) : read.count])
        if there != read.last:
            yield f"incompatible order: {call} read {read.last} up to place {read.count}; there is {there}"
            return
        if 0 < read.count < len(elements):
            before, after = (self._writer_of.get(elements[at]) for at in (read.count - 1, read.count))
            if before is not None and before == after:
                yield f"intermediate read: {call} read {read.name} between elements of one transaction"

    def _cycles(self) -> Iterator[str]:
        graph = DependencyGraph()
        for elements in self._lists.values():
            writers = [self._writer_of[element] for element in elements if element in self._writer_of]
            for before, after in pairwise(writers):
                graph.add(before, after, Dependency.WW)
        for number, call in enumerate(self._transactions):
            # What an aborted transaction has read is nobody's concern.
            if call.outcome is Outcome.REFUSED or not self._took_place(call):
                continue
            for read in call.reads:
                self._add_read(graph, number, read)
        for cycle in graph.cycles():
            steps = " ".join(f"{self._name(number)} {kind}" for number, kind in cycle.steps)
            yield f"{cycle.anomaly}: {steps} {self._name(cycle.steps[0][0])}"

    def _name(self, number: int) -> str:
        return f"{self._transactions[number].client}/{number}"

    def _took_place(self, call: TransactionCall) -> bool:
        if call.outcome is Outcome.DONE:
            return True
        return any(element in self._stored for _, element in call.appends)

    def _add_read(self, graph: DependencyGraph, number: int, read: ListRead) -> None:
        elements = self._lists[read.name]
        own = self._writer_of
        if 0 < read.count <= len(elements) and elements[read.count - 1] in own:
            graph.add(own[elements[read.count - 1]], number, Dependency.WR)
        following = (own.get(element) for element in elements[read.count :])
        # A transaction's own appends come behind what it has read.
        later = next((writer for writer in following if writer not in (None, number)), None)
        if later is not None:
            graph.add(number, later, Dependency.RW)
