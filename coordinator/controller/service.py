"""The controller as seen by the rest of the broker: its requests, while this broker is the controller.

Every request fails with `BrokerError` NOT_CONTROLLER if this broker is not the controller, or stops being the
controller before the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail

from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.cluster.candidacy import Candidacy
from holdfast_log.coordinator.cluster.term import Term
from holdfast_log.coordinator.controller.channel import SendRequest
from holdfast_log.coordinator.controller.events import (
    AlterPartitions,
    AlterReassignments,
    ControlledShutdown,
    ControllerEvent,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    ListReassignments,
    MinInSyncChanged,
    MorePartitions,
    ShutdownResult,
    TopicCreation,
    TopicResult,
    UncleanElectionEnabled,
)
from holdfast_log.coordinator.controller.machine import ControllerPolicy
from holdfast_log.coordinator.controller.runtime import ControllerRuntime
from holdfast_log.coordinator.controller.state import ControllerState
from holdfast_log.coordinator.controller.topic_rules import NAME_LENGTH_MAX
from holdfast_log.coordinator.controller.waiting_request import not_controller
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from holdfast_log.protocol.topic_partition import TopicPartition

REQUEST_TIMEOUT_MS = 30_000
"""Timeout of requests from brokers to the controller."""


class ControllerService:
    """Runs the controller whenever this broker is elected; a `CandidacyListener`.

    `send` reaches every broker, including this one. `candidacy` gives up a term that an error has ended.
    `balance_interval_ms` is the time between two checks of leader imbalance; 0 for none.
    """

    def __init__(
        self,
        candidacy: Candidacy,
        clock: Clock,
        send: SendRequest,
        policy: ControllerPolicy,
        *,
        balance_interval_ms: int = 0,
    ) -> None:
        self._candidacy = candidacy
        self._clock = clock
        self._send = send
        self._policy = policy
        self._balance_interval_ms = balance_interval_ms
        self._runtime: ControllerRuntime | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._runtime is not None

    @property
    def state(self) -> ControllerState | None:
        """What the controller knows of the cluster, to look at; None if this broker is not the controller."""
        return None if self._runtime is None else self._runtime.controller.state

    # CandidacyListener

    def elected(self, term: Term) -> None:
        self._runtime = ControllerRuntime(
            term, self._policy, self._clock, self._send, self._lost, self._balance_interval_ms
        )
        self._runtime.begin()

    def resigned(self) -> None:
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            runtime.end()

    def controller_is(self, broker_id: int | None) -> None:
        pass

    def _lost(self, error: Exception) -> None:
        self.resigned()
        if not isinstance(error, SessionExpired):
            self._candidacy.give_up_term()

    # Requests

    def create_topics(
        self, topics: Sequence[TopicCreation], timeout_ms: int, *, validate_only: bool = False
    ) -> Deferred[dict[str, TopicResult]]:
        """Create topics. A result has error NONE once brokers can serve the topic."""
        return self._ask(
            lambda token: CreateTopics(token, topics, validate_only),
            [topic.name for topic in topics],
            timeout_ms,
            _late_topic,
        )

    def delete_topics(self, names: Sequence[str], timeout_ms: int) -> Deferred[dict[str, TopicResult]]:
        """Delete topics. A result has error NONE once the topic is removed, or marked and hidden from
        clients."""
        return self._ask(lambda token: DeleteTopics(token, names), names, timeout_ms, _late_topic)

    def create_partitions(
        self, topics: Sequence[MorePartitions], timeout_ms: int, *, validate_only: bool = False
    ) -> Deferred[dict[str, TopicResult]]:
        """Add partitions to topics. A result has error NONE once brokers can serve them."""
        return self._ask(
            lambda token: CreatePartitions(token, topics, validate_only),
            [topic.name for topic in topics],
            timeout_ms,
            _late_topic,
        )

    def alter_partition(self, request: AlterPartitionRequest) -> Deferred[AlterPartitionResponse]:
        """Handle a leader's proposal of new in-sync sets."""
        return self._ask_one(
            lambda token: AlterPartitions([(token, request)]),
            REQUEST_TIMEOUT_MS,
            lambda key: AlterPartitionResponse(
                throttle_time_ms=0, error_code=ErrorCode.REQUEST_TIMED_OUT, topics=[]
            ),
        )

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Deferred[ShutdownResult]:
        """Move leadership off a broker that is about to stop."""
        return self._ask_one(
            lambda token: ControlledShutdown(token, broker_id, broker_epoch),
            REQUEST_TIMEOUT_MS,
            lambda key: ShutdownResult(ErrorCode.REQUEST_TIMED_OUT),
        )

    def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, timeout_ms: int, *, unclean: bool = False
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Elect preferred leaders; `partitions` None means all.

        With `unclean`, elect leaders for leaderless partitions instead, even if committed records are lost.
        """
        return self._ask_one(
            lambda token: ElectLeaders(token, partitions, unclean),
            timeout_ms,
            lambda key: dict.fromkeys(partitions or (), ErrorCode.REQUEST_TIMED_OUT),
        )

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
    ) -> Deferred[dict[TopicPartition, BrokerError | None]]:
        """Reassign partitions to other brokers; a target of None cancels a running reassignment.

        Fires with an error for each refused partition, and None for each reassignment that has begun;
        `list_reassignments` shows which still run.
        """
        late = BrokerError(ErrorCode.REQUEST_TIMED_OUT, "not begun within the timeout; it may still begin")
        return self._ask_one(
            lambda token: AlterReassignments(token, targets),
            timeout_ms,
            lambda key: dict.fromkeys(targets, late),
        )

    def list_reassignments(self, timeout_ms: int) -> Deferred[dict[TopicPartition, ReplicaAssignment]]:
        """All running reassignments. Fails with `BrokerError` REQUEST_TIMED_OUT after `timeout_ms`."""
        listed: Deferred[dict[TopicPartition, ReplicaAssignment] | None] = self._ask_one(
            ListReassignments, timeout_ms, lambda key: None
        )
        return listed.addCallback(_in_time)

    def unclean_election_enabled(self, topic: str) -> None:
        """A topic's unclean.leader.election.enable has become true."""
        if self._runtime is not None:
            self._runtime.put(UncleanElectionEnabled(topic))

    def topic_settings_changed(self, topic: str) -> None:
        """A topic's settings, min.insync.replicas among them, may have changed."""
        if self._runtime is not None:
            self._runtime.put(MinInSyncChanged(topic))

    def _ask(
        self,
        make_event: Callable[[int], ControllerEvent],
        keys: Sequence[Any],
        timeout_ms: int,
        late: Callable[[Any], Any],
    ) -> Deferred[Any]:
        """Queue a request of several parts; fires with the results by key."""
        if self._runtime is None:
            return fail(not_controller())
        return self._runtime.request(make_event, keys, timeout_ms, late)

    def _ask_one(
        self, make_event: Callable[[int], ControllerEvent], timeout_ms: int, late: Callable[[Any], Any]
    ) -> Deferred[Any]:
        """Queue a request that has one result; fires with it."""
        return self._ask(make_event, [None], timeout_ms, late).addCallback(_only)


def _late_topic(name: str) -> TopicResult:
    return TopicResult(
        name,
        ErrorCode.REQUEST_TIMED_OUT,
        f"topic {name[:NAME_LENGTH_MAX]!r}: not finished within the timeout; the controller continues, check "
        "the topic's metadata",
    )


def _in_time(
    result: dict[TopicPartition, ReplicaAssignment] | None,
) -> dict[TopicPartition, ReplicaAssignment]:
    if result is None:
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "the controller is busy; retry")
    return result


def _only(results: dict[None, Any]) -> Any:
    return results[None]
