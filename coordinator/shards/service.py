"""The shards of one broker: one for each partition of an internal topic that it leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, DeferredList, fail

from holdfast_log.coordinator.shards.hosted_shard import HostedShard, Shard, ShardEvent
from holdfast_log.protocol.errors import BrokerError, ErrorCode

S = TypeVar("S", bound=Shard)


class ShardHosts(Generic[S]):
    """Routes requests to shards. `partition_of(key)` is the partition that stores a key, None while the topic
    does not exist."""

    def __init__(self, partition_of: Callable[[str], int | None]) -> None:
        self._partition_of = partition_of
        self._hosts: dict[int, HostedShard[S]] = {}

    # Leadership

    def resign(self, partition: int) -> None:
        """This broker no longer leads the partition: close its shard. Harmless if it did not lead it."""
        host = self._hosts.pop(partition, None)
        if host is not None:
            host.close()

    def stop(self) -> None:
        for partition in list(self._hosts):
            self.resign(partition)

    def _begin(self, partition: int, host: HostedShard[S]) -> None:
        """Load the shard of a partition that this broker leads in a new leader epoch."""
        self._hosts[partition] = host
        host.load()

    # Requests

    def ask(self, key: str, event: ShardEvent[S]) -> Deferred[Any]:
        """Submit a request to the shard of `key`; fires with its answer once that is durable.

        Fails with BrokerError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or
        the error with which the log refused the records.
        """
        partition = self._partition_of(key)
        if partition is None:
            return fail(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        host = self._hosts.get(partition)
        if host is None:
            return fail(BrokerError(ErrorCode.NOT_COORDINATOR))
        done: Deferred[Any] = Deferred()
        host.ask(event, done)
        return done

    def ask_all(self, event: ShardEvent[S]) -> Deferred[tuple[list[Any], ErrorCode]]:
        """Submit a request to every shard of this broker. Never fails.

        Fires with the shards' answers and the error of a shard that could not answer, if any. NOT_COORDINATOR
        is not reported: the broker that has taken over the shard answers for it.
        """
        asked = []
        for host in list(self._hosts.values()):
            done: Deferred[Any] = Deferred()
            host.ask(event, done)
            asked.append(done)
        return DeferredList(asked, consumeErrors=True).addCallback(_merge_answers)

    def _served(self) -> list[S]:
        return [host.served for host in self._hosts.values() if host.served is not None]


def _merge_answers(outcomes: list[tuple[bool, Any]]) -> tuple[list[Any], ErrorCode]:
    answers = []
    error = ErrorCode.NONE
    for succeeded, outcome in outcomes:
        if succeeded:
            answers.append(outcome)
            continue
        outcome.trap(BrokerError)
        if outcome.value.code is not ErrorCode.NOT_COORDINATOR:
            error = outcome.value.code
    return answers, error
