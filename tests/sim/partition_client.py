"""The base of simulated clients that work with one partition, one request at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.sim.client import Client, Surroundings
from tests.sim.history import TopicPartition

R = TypeVar("R", bound=Response)

_TIMEOUT_MS = 3000


def _nothing() -> None:
    pass


class PartitionClient(Client):
    """A client that acts on the partition `at` while it `is_making`, about every `pause_s` seconds, unless a
    request is under way."""

    def __init__(self, around: Surroundings, name: str, at: TopicPartition, pause_s: float) -> None:
        super().__init__(around, name)
        self.at = at
        self.is_making = True
        self.pause_s = pause_s
        self._is_waiting = False

    def begin(self) -> None:
        super().begin()
        self._tick()

    @property
    def is_idle(self) -> bool:
        """Whether the client makes nothing more, and no request is under way."""
        return not self.is_making and not self._is_waiting

    def _tick(self) -> None:
        leader = self.leader_of(self.at)
        if leader is None:
            self.refresh()
        elif self.is_making and not self._is_waiting:
            self.act(leader[0])
        self.later(self.pause_s * self.rng.uniform(0.2, 1.8), self._tick)

    def act(self, address: Address) -> None:
        """Send the next request, if there is one, to the partition's leader. Overridden in subclasses."""
        raise NotImplementedError

    def ask(
        self,
        address: Address,
        request: Request[R],
        answered: Callable[[R], None],
        failed: Callable[[], None] = _nothing,
        version: int | None = None,
    ) -> None:
        """Send a request. Without an answer the leader may have changed: then it is looked up again."""

        def over(response: R) -> None:
            self.history.operations += 1
            self._is_waiting = False
            answered(response)

        def lost(_: object) -> None:
            self._is_waiting = False
            failed()
            self.refresh()

        self._is_waiting = True
        self.send(address, request, version).addCallbacks(over, lost)

    def produce(
        self,
        address: Address,
        data: PartitionProduceData,
        answered: Callable[[PartitionProduceResponse], None],
        failed: Callable[[], None] = _nothing,
        acks: int = -1,
    ) -> None:
        """Send a batch to the partition's leader."""
        request = ProduceRequest(
            acks=acks,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self.at[0], partition_data=[data])],
        )
        self.ask(
            address, request, lambda response: answered(response.responses[0].partition_responses[0]), failed
        )
