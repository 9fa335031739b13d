"""Requests about several partitions that are answered once all their partitions are decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from holdfast_log.protocol.topic_partition import TopicPartition

R = TypeVar("R")


@dataclass(slots=True)
class _Request(Generic[R]):
    token: int
    results: dict[TopicPartition, R]
    undecided: dict[TopicPartition, None]


class UnansweredRequests(Generic[R]):
    """The requests with undecided partitions. `R` is the result of one partition."""

    def __init__(self) -> None:
        self._requests: list[_Request[R]] = []

    def add(
        self, token: int, results: Mapping[TopicPartition, R], undecided: Iterable[TopicPartition]
    ) -> None:
        """Keep a request, with the results so far."""
        self._requests.append(_Request(token, dict(results), dict.fromkeys(undecided)))

    def decided(self, results: Mapping[TopicPartition, R]) -> list[tuple[int, dict[TopicPartition, R]]]:
        """Take the results of partitions. Returns token and results of each request that is complete now."""
        complete: list[_Request[R]] = []
        incomplete: list[_Request[R]] = []
        for request in self._requests:
            for at, result in results.items():
                if at in request.undecided:
                    del request.undecided[at]
                    request.results[at] = result
            (incomplete if request.undecided else complete).append(request)
        self._requests = incomplete
        return [(request.token, request.results) for request in complete]
