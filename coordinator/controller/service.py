"""The controller as the rest of the broker sees it: what may be asked of it, while this broker is the one.

Every request fails with `BrokerError` NOT_CONTROLLER where this broker is not the controller, or ceases to be
it before the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail

from coordinator.clock import Clock
from coordinator.cluster.candidacy import Candidacy
from coordinator.cluster.term import Term
from coordinator.controller.answers import not_controller
from coordinator.controller.channel import SendRequest
from coordinator.controller.events import (
    AlterPartitions,
    AlterReassignments,
    ControlledShutdown,
    ControllerEvent,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    ListReassignments,
    MorePartitions,
    ShutdownResult,
    TopicCreation,
    TopicResult,
    UncleanElectionEnabled,
)
from coordinator.controller.machine import ControllerPolicy
from coordinator.controller.reign import Reign
from coordinator.controller.topic_rules import NAME_LENGTH_MAX
from coordinator.placement import ReplicaAssignment
from coordinator.zookeeper.interface import SessionExpired
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.topic_partition import TopicPartition

REQUEST_TIMEOUT_MS = 30_000
"""How long brokers wait for the controller."""


class ControllerService:
    """Reigns from one election to the next.

    `send` reaches every broker, this one included. `balance_interval_ms` is the time between two looks at the
    balance of leadership, 0 for none.
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
        self._reign: Reign | None = None
        candidacy.add_listener(self)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._reign is not None

    # CandidacyListener

    def elected(self, term: Term) -> None:
        self._reign = Reign(
            term, self._policy, self._clock, self._send, self._lost, self._balance_interval_ms
        )
        self._reign.begin()

    def resigned(self) -> None:
        if self._reign is not None:
            reign, self._reign = self._reign, None
            reign.end()

    def controller_is(self, broker_id: int | None) -> None:
        pass

    def _lost(self, error: Exception) -> None:
        self.resigned()
        if not isinstance(error, SessionExpired):
            self._candidacy.give_up_term()

    # What may be asked

    def create_topics(
        self, topics: Sequence[TopicCreation], timeout_ms: int, *, validate_only: bool = False
    ) -> Deferred[dict[str, TopicResult]]:
        """Make topics. A result says NONE once brokers can serve the topic."""
        return self._ask(
            lambda token: CreateTopics(token, topics, validate_only),
            [topic.name for topic in topics],
            timeout_ms,
            _late_topic,
        )

    def delete_topics(self, names: Sequence[str], timeout_ms: int) -> Deferred[dict[str, TopicResult]]:
        """Delete topics. A result says NONE once the topic has gone, or is out of sight for good."""
        return self._ask(lambda token: DeleteTopics(token, names), names, timeout_ms, _late_topic)

    def create_partitions(
        self, topics: Sequence[MorePartitions], timeout_ms: int, *, validate_only: bool = False
    ) -> Deferred[dict[str, TopicResult]]:
        """Add partitions to topics. A result says NONE once brokers can serve them."""
        return self._ask(
            lambda token: CreatePartitions(token, topics, validate_only),
            [topic.name for topic in topics],
            timeout_ms,
            _late_topic,
        )

    def alter_partition(self, request: AlterPartitionRequest) -> Deferred[AlterPartitionResponse]:
        """A leader proposes other in-sync sets."""
        return self._ask_one(
            lambda token: AlterPartitions([(token, request)]),
            REQUEST_TIMEOUT_MS,
            lambda key: AlterPartitionResponse(
                throttle_time_ms=0, error_code=ErrorCode.REQUEST_TIMED_OUT, topics=[]
            ),
        )

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Deferred[ShutdownResult]:
        """A broker is about to stop: take leadership from it first."""
        return self._ask_one(
            lambda token: ControlledShutdown(token, broker_id, broker_epoch),
            REQUEST_TIMEOUT_MS,
            lambda key: ShutdownResult(ErrorCode.REQUEST_TIMED_OUT),
        )

    def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, timeout_ms: int, *, unclean: bool = False
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Give leadership back to the preferred leaders, of all partitions where None are named.

        With `unclean`, give leaders to partitions without, at the price of committed records if need be.
        """
        return self._ask_one(
            lambda token: ElectLeaders(token, partitions, unclean),
            timeout_ms,
            lambda key: dict.fromkeys(partitions or (), ErrorCode.REQUEST_TIMED_OUT),
        )

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
    ) -> Deferred[dict[TopicPartition, BrokerError | None]]:
        """Move partitions to other brokers, or with None cancel their moves; why not, where one is refused.

        This says that the moves have begun; `list_reassignments` says which still run.
        """
        late = BrokerError(ErrorCode.REQUEST_TIMED_OUT, "not begun within the time given; it may begin yet")
        return self._ask_one(
            lambda token: AlterReassignments(token, targets),
            timeout_ms,
            lambda key: dict.fromkeys(targets, late),
        )

    def list_reassignments(
        self, partitions: Sequence[TopicPartition] | None, timeout_ms: int
    ) -> Deferred[dict[TopicPartition, ReplicaAssignment]]:
        """The partitions that are on the move, of those named or of all.

        Fails with `BrokerError` REQUEST_TIMED_OUT when the time is up.
        """
        listed: Deferred[dict[TopicPartition, ReplicaAssignment] | None] = self._ask_one(
            lambda token: ListReassignments(token, partitions), timeout_ms, lambda key: None
        )
        return listed.addCallback(_in_time)

    def unclean_election_enabled(self, topic: str) -> None:
        """A topic's configs have changed: unclean.leader.election.enable holds for it now."""
        if self._reign is not None:
            self._reign.put(UncleanElectionEnabled(topic))

    def _ask(
        self,
        make_event: Callable[[int], ControllerEvent],
        keys: Sequence[Any],
        timeout_ms: int,
        late: Callable[[Any], Any],
    ) -> Deferred[Any]:
        """Queue a request of several parts; the results by part."""
        if self._reign is None:
            return fail(not_controller())
        return self._reign.request(make_event, keys, timeout_ms, late)

    def _ask_one(
        self, make_event: Callable[[int], ControllerEvent], timeout_ms: int, late: Callable[[Any], Any]
    ) -> Deferred[Any]:
        """Queue a request that has one result."""
        return self._ask(make_event, [None], timeout_ms, late).addCallback(_only)


def _late_topic(name: str) -> TopicResult:
    return TopicResult(
        name,
        ErrorCode.REQUEST_TIMED_OUT,
        f"topic {name[:NAME_LENGTH_MAX]!r}: not finished within the time given; it goes on, ask for metadata "
        "to see",
    )


def _in_time(
    result: dict[TopicPartition, ReplicaAssignment] | None,
) -> dict[TopicPartition, ReplicaAssignment]:
    if result is None:
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "the controller has too much else to do; ask again")
    return result


def _only(results: dict[None, Any]) -> Any:
    return results[None]
