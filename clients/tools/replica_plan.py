"""Plans replicas so that the listed brokers hold and lead about the same number. Pure: no I/O.

A plan is chosen by four rules, an earlier one before a later one:

1. The replicas of each partition are on as many racks as possible.
2. Each broker holds as many replicas as any other, or one more or less, unless rule 1 prevents it.
3. As few replicas as possible are copied to another broker.
4. Each broker is the preferred leader of as many partitions as any other, or one more or less; as few
   partitions as possible get another leader.

A plan begins as the current placement. Replicas go from the fullest to the emptiest broker while one such
move makes the plan better. Then `improve` looks for circles of moves that make it better together, until
there are none. Without such a circle no better plan exists: this is cycle cancelling in a minimum-cost flow,
in which the brokers are the nodes. Only with more replicas than racks a better plan may be overlooked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from holdfast_log.protocol.topic_partition import TopicPartition


class NotEnoughBrokers(ValueError):
    """A partition has more replicas than brokers are listed; the message gives both numbers."""


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """A possible move of one replica, or of the leadership of one partition."""

    cost: int
    """How much worse the plan gets by it, without the change in balance. Negative: better."""
    crowding: int
    """Of moves with the same cost the least is chosen: how much more of the topic the target has."""
    partition: TopicPartition
    source: int
    target: int


def plan(
    current: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None]
) -> dict[TopicPartition, tuple[int, ...]]:
    """The planned replicas of each partition, preferred leader first.

    `racks` maps each broker to use to its rack; a broker without a rack counts as a rack of its own.
    Raises `NotEnoughBrokers`.
    """
    for partition, replicas in current.items():
        if len(replicas) > len(racks):
            raise NotEnoughBrokers(
                f"{partition} has {len(replicas)} replicas, and {len(racks)} brokers are listed"
            )
    held = _Replicas(current, racks)
    improve(held)
    leaders = _Leaders(current, held.placed, racks)
    improve(leaders)
    return {partition: leaders.in_order(partition) for partition in current}


@dataclass(slots=True)
class Balance(ABC):
    """Something that brokers have a number of, to be balanced by moves between two brokers."""

    loads: dict[int, int]
    imbalance_weight: int
    """Cost of one step of imbalance. Higher than the number of moves that a plan can take."""
    topic_loads: Counter[tuple[int, str]] = field(default_factory=Counter)

    @abstractmethod
    def moves(self, source: int, target: int) -> Iterator[Move]:
        """Every move that is possible between two brokers."""

    @abstractmethod
    def cost(self, move: Move) -> int | None:
        """What a move would cost now; None if it has become impossible."""

    @abstractmethod
    def apply(self, move: Move) -> None:
        """Change the plan."""

    def added(self, partition: TopicPartition, broker: int, number: int = 1) -> None:
        self.loads[broker] += number
        self.topic_loads[broker, partition.topic] += number

    def cost_of_one_more(self, broker: int) -> int:
        """The difference between the squares of two loads, so that the balanced sum is the least."""
        return self.imbalance_weight * (2 * self.loads[broker] + 1)

    def gain_of_one_less(self, broker: int) -> int:
        return self.imbalance_weight * (2 * self.loads[broker] - 1)

    def crowding(self, partition: TopicPartition, source: int, target: int) -> int:
        return self.topic_loads[target, partition.topic] - self.topic_loads[source, partition.topic]


class _Replicas(Balance):
    """Which broker holds which replicas."""

    __slots__ = ("_current", "_held", "_racks", "_too_few_racks", "placed")

    def __init__(
        self, current: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None]
    ) -> None:
        total = sum(map(len, current.values()))
        Balance.__init__(self, dict.fromkeys(sorted(racks), 0), imbalance_weight=total + 1)
        self.placed: dict[TopicPartition, list[int]] = {}
        self._current = current
        self._racks = {broker: broker if rack is None else rack for broker, rack in racks.items()}
        # More than the highest possible imbalance: no balance is worth a rack.
        self._too_few_racks = self.imbalance_weight * (total + 1) ** 2
        self._held: dict[int, set[TopicPartition]] = {broker: set() for broker in racks}
        for partition, replicas in sorted(current.items()):
            self.placed[partition] = [broker for broker in replicas if broker in racks]
            for broker in self.placed[partition]:
                self._hold(partition, broker)
        for partition, placed in self.placed.items():
            self._complete(partition, placed, len(current[partition]))

    def _hold(self, partition: TopicPartition, broker: int) -> None:
        self._held[broker].add(partition)
        self.added(partition, broker)

    def _complete(self, partition: TopicPartition, placed: list[int], count: int) -> None:
        """Replace the replicas of brokers that are not listed."""
        while len(placed) < count:
            used = {self._racks[broker] for broker in placed}
            chosen = min(
                (broker for broker in self.loads if broker not in placed),
                key=lambda broker: (self._racks[broker] in used, self.loads[broker], broker),
            )
            placed.append(chosen)
            self._hold(partition, chosen)

    def moves(self, source: int, target: int) -> Iterator[Move]:
        for partition in self._held[source] - self._held[target]:
            cost = self._cost(partition, source, target)
            yield Move(cost, self.crowding(partition, source, target), partition, source, target)

    def cost(self, move: Move) -> int | None:
        if move.partition in self._held[move.target]:
            return None
        return self._cost(move.partition, move.source, move.target)

    def _cost(self, partition: TopicPartition, source: int, target: int) -> int:
        current = self._current[partition]
        copies = int(target not in current) - int(source not in current)
        if self._racks[source] == self._racks[target]:
            return copies
        others = [self._racks[broker] for broker in self.placed[partition] if broker != source]
        racks_lost = int(self._racks[source] not in others) - int(self._racks[target] not in others)
        return copies + racks_lost * self._too_few_racks

    def apply(self, move: Move) -> None:
        placed = self.placed[move.partition]
        placed[placed.index(move.source)] = move.target
        self._held[move.source].remove(move.partition)
        self.added(move.partition, move.source, -1)
        self._hold(move.partition, move.target)


class _Leaders(Balance):
    """Which broker is the preferred leader of which partitions."""

    __slots__ = ("_current", "_leader", "_led", "_replicas")

    def __init__(
        self,
        current: Mapping[TopicPartition, Sequence[int]],
        replicas: Mapping[TopicPartition, Sequence[int]],
        brokers: Mapping[int, str | None],
    ) -> None:
        Balance.__init__(self, dict.fromkeys(sorted(brokers), 0), imbalance_weight=len(current) + 1)
        self._current = current
        self._replicas = replicas
        self._leader: dict[TopicPartition, int] = {}
        self._led: dict[int, set[TopicPartition]] = {broker: set() for broker in brokers}
        for partition, placed in replicas.items():
            if placed:
                leader = next(broker for broker in (*current[partition], *placed) if broker in placed)
                self._lead(partition, leader)

    def _lead(self, partition: TopicPartition, broker: int) -> None:
        self._leader[partition] = broker
        self._led[broker].add(partition)
        self.added(partition, broker)

    def in_order(self, partition: TopicPartition) -> tuple[int, ...]:
        """The replicas of a partition, the leader first."""
        leader = self._leader.get(partition)
        return tuple(sorted(self._replicas[partition], key=lambda broker: broker != leader))

    def moves(self, source: int, target: int) -> Iterator[Move]:
        for partition in self._led[source]:
            if target in self._replicas[partition]:
                cost = self._cost(partition, source, target)
                yield Move(cost, self.crowding(partition, source, target), partition, source, target)

    def cost(self, move: Move) -> int | None:
        return self._cost(move.partition, move.source, move.target)

    def _cost(self, partition: TopicPartition, source: int, target: int) -> int:
        before = self._current[partition][0]
        return int(target != before) - int(source != before)

    def apply(self, move: Move) -> None:
        self._led[move.source].remove(move.partition)
        self.added(move.partition, move.source, -1)
        self._lead(move.partition, move.target)


def improve(balance: Balance) -> None:
    """Make moves until none, and no circle of them, makes the plan better."""
    fruitless: set[tuple[int, int]] = set()
    while (move := _best_single(balance, fruitless)) is not None:
        balance.apply(move)
        changed = {move.source, move.target}
        fruitless = {pair for pair in fruitless if changed.isdisjoint(pair)}
    refused: set[Move] = set()
    while circle := _circle(balance, refused):
        if _apply_all(balance, circle):
            refused.clear()
        else:
            partitions = [move.partition for move in circle]
            refused.add(next(move for move in circle if partitions.count(move.partition) > 1))


def _best_single(balance: Balance, fruitless: set[tuple[int, int]]) -> Move | None:
    """A move from the fullest to the emptiest broker between which a move makes the plan better.

    Pairs of brokers without such a move are added to `fruitless`, and are not tried again.
    """
    by_load = sorted(balance.loads, key=lambda broker: (balance.loads[broker], broker))
    for source in reversed(by_load):
        for target in by_load:
            if balance.loads[source] - balance.loads[target] < 2:
                break
            if (source, target) in fruitless:
                continue
            move = min(balance.moves(source, target), default=None)
            change = balance.cost_of_one_more(target) - balance.gain_of_one_less(source)
            if move is not None and move.cost + change < 0:
                return move
            fruitless.add((source, target))
    return None


def _apply_all(balance: Balance, circle: Sequence[Move]) -> bool:
    """Make the moves unless they cost more one after another than each alone.

    They may if a partition is in two of them: both may count on the same rack.
    """
    excess = 0
    for done, move in enumerate(circle):
        cost = balance.cost(move)
        excess += (cost or 0) - move.cost
        if cost is None or (excess > 0 and move is circle[-1]):
            for each in reversed(circle[:done]):
                balance.apply(replace(each, source=each.target, target=each.source))
            return False
        balance.apply(move)
    return True


_SCALES = -1
"""The node through which a circle passes where one broker gets one more in place of another."""


def _circle(balance: Balance, refused: set[Move]) -> list[Move]:
    """Moves that make the plan better together; empty if there are none. Bellman and Ford's algorithm."""
    moves: dict[tuple[int, int], Move] = {}
    costs: dict[tuple[int, int], int] = {}
    for source in balance.loads:
        for target in balance.loads:
            if source != target:
                possible = (move for move in balance.moves(source, target) if move not in refused)
                move = min(possible, default=None)
                if move is not None:
                    moves[source, target] = move
                    costs[source, target] = move.cost
        costs[source, _SCALES] = balance.cost_of_one_more(source)
        costs[_SCALES, source] = -balance.gain_of_one_less(source)
    nodes = [*balance.loads, _SCALES]
    distance = dict.fromkeys(nodes, 0)
    reached_from: dict[int, int] = {}
    last: int | None = None
    for _ in nodes:
        last = None
        for (source, target), cost in costs.items():
            if distance[source] + cost < distance[target]:
                distance[target] = distance[source] + cost
                reached_from[target] = source
                last = target
        if last is None:
            return []
    assert last is not None
    for _ in nodes:  # Back into the circle, from which `last` may only have been reached.
        last = reached_from[last]
    path = [last]
    while (before := reached_from[path[-1]]) != last:
        path.append(before)
    path.append(last)
    path.reverse()
    return [moves[step] for step in pairwise(path) if step in moves]
