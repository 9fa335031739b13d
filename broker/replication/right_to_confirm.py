"""A leader's right to confirm: to answer what is true only at the current leader, such as who owns a
partition.

A broker may confirm while it holds its lease (`coordinator.cluster.lease`): its registration cannot have
ended then. The controller moves the leadership of a registered broker only after that broker has yielded it,
or has asked for the move itself. So no other broker leads a partition that its leader may confirm.

A broker that has registered again holds a lease again, but others may have led meanwhile: it confirms
nothing until the controller has said what it leads.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.yield_leadership import YieldLeadershipRequest


@dataclass(frozen=True, slots=True)
class _Yield:
    """The controller's latest word on a partition. It holds for leader epochs up to `leader_epoch`."""

    leader_epoch: int
    controller_epoch: int
    broker_epoch: int
    number: int
    is_yielded: bool

    def is_newer(self, other: _Yield) -> bool:
        return (self.controller_epoch, self.number) >= (other.controller_epoch, other.number)


class RightToConfirm:
    """Knows what this broker may confirm. `is_lease_held` returns whether the broker holds its lease."""

    def __init__(self, is_lease_held: Callable[[], bool]) -> None:
        self._is_lease_held = is_lease_held
        self._yields: dict[tuple[uuid.UUID, int], _Yield] = {}
        self._is_handed_over = False
        self.awaits_orders = False
        """Whether a registration of this broker has ended, and the controller has not yet said what it leads
        in the next one."""
        self._listeners: list[Callable[[], None]] = []

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after this broker has lost or regained the right to confirm, of all partitions or
        of some."""
        self._listeners.append(listener)

    def is_registered(self) -> bool:
        """Whether this broker is registered for certain, and knows what it leads in this registration: no
        other broker has been elected in its place without its consent. Ask at the moment of each answer."""
        return self._is_lease_held() and not self.awaits_orders

    def may_confirm_any(self) -> bool:
        """Whether the broker may confirm anything. Ask at the moment of each answer."""
        return self.is_registered() and not self._is_handed_over

    def may_confirm(self, partition: Partition) -> bool:
        """Whether the broker, which leads the partition, may confirm it. Ask at the moment of each answer."""
        if not self.may_confirm_any() or partition.is_resigning:
            return False
        if not self._yields:
            return True
        word = self._yields.get((partition.topic_id, partition.index))
        return word is None or not word.is_yielded or partition.leader_epoch > word.leader_epoch

    # Changes

    def lease_changed(self) -> None:
        """The broker's lease has ended, or is held again."""
        self._changed()

    def obey(self, request: YieldLeadershipRequest) -> None:
        """Yield the partitions of the request, or confirm again, as it says."""
        for topic in request.topics:
            for row in topic.partitions:
                key = (topic.topic_id, row.partition)
                word = _Yield(
                    row.leader_epoch,
                    request.controller_epoch,
                    request.broker_epoch,
                    request.number,
                    row.is_yielded,
                )
                known = self._yields.get(key)
                if known is None or word.is_newer(known):
                    self._yields[key] = word
        self._changed()

    def assigned(self, request: LeaderAndIsrRequest, find: Callable[[str, int], Partition | None]) -> None:
        """Forget, for the partitions of a request that has been applied, what was yielded to an earlier
        controller or in an earlier registration of this broker: it can no longer lead to a move. `find`
        returns this broker's replica.

        Forget also what concerns earlier leader epochs. A request that repeats the leader epoch to the same
        registration says nothing new: the controller may be about to move the leadership.
        """
        if not self._yields:
            return
        has_changed = False
        for topic in request.topic_states:
            for row in topic.partition_states:
                key = (topic.topic_id, row.partition_index)
                known, partition = self._yields.get(key), find(topic.topic_name, row.partition_index)
                if known is None or partition is None:
                    continue
                is_repeated = row.leader_epoch == known.leader_epoch and (
                    request.controller_epoch > known.controller_epoch
                    or request.broker_epoch > known.broker_epoch
                )
                if is_repeated or partition.leader_epoch > known.leader_epoch:
                    del self._yields[key]
                    has_changed = True
        if has_changed:
            self._changed()

    def await_orders(self) -> None:
        """Confirm nothing until `orders_came`: this broker's registration has ended."""
        self.awaits_orders = True
        self._changed()

    def orders_came(self) -> None:
        """The controller has said what this broker leads in its present registration."""
        if self.awaits_orders:
            self.awaits_orders = False
            self._changed()

    def hand_over(self) -> None:
        """Confirm nothing any more, because this broker is about to ask for other leaders in its place. The
        controller may act on that at any time, so there is no way back."""
        self._is_handed_over = True
        self._changed()

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()
