"""Runs the controller machine for one term of this broker: the event queue, and effects performed in order.

Events are handled one at a time. Each effect is performed and its result sent back into the machine before
the next effect is requested, so writes are durable before anything that depends on them is sent. The runtime
ends with the session or the term; results that arrive afterwards are ignored.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock, DelayedCall
from holdfast_log.coordinator.cluster.term import Term
from holdfast_log.coordinator.controller import writes
from holdfast_log.coordinator.controller.channel import ControllerChannel, SendRequest
from holdfast_log.coordinator.controller.effects import (
    AnswerRequest,
    AskToYieldLater,
    BrokerRequest,
    CheckRecovery,
    ControllerEffect,
    CreateTopic,
    MarkDeleted,
    Pause,
    ReadZnodeRequest,
    RecordBrokers,
    RemoveTopic,
    RemoveZnodeRequests,
    SendToBrokers,
    SetBrokers,
    WriteAssignments,
    WriteReassignmentZnode,
    WriteStates,
)
from holdfast_log.coordinator.controller.event_summary import EventSummary
from holdfast_log.coordinator.controller.events import (
    AlterPartitions,
    BalanceDue,
    BrokerAnswered,
    BrokerResponse,
    BrokersChanged,
    ControllerEvent,
    Elected,
    RecoveryCheckDue,
    YieldDue,
)
from holdfast_log.coordinator.controller.machine import Controller, ControllerPolicy
from holdfast_log.coordinator.controller.reads import (
    read_brokers,
    read_deletions,
    read_first_leader_epoch,
    read_record,
    read_topics,
)
from holdfast_log.coordinator.controller.state import LiveBroker, Snapshot
from holdfast_log.coordinator.controller.unreadable import ReadingReports, UnreadableTopics
from holdfast_log.coordinator.controller.waiting_request import TimeLimits, WaitingRequest, not_controller
from holdfast_log.coordinator.controller.znode_requests import ZnodeRequestWatch, read_znode_request
from holdfast_log.coordinator.pause import pause
from holdfast_log.coordinator.raised import raised
from holdfast_log.coordinator.znodes.brokers import broker_path
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import SessionExpired, WatchEvent

_log = logging.getLogger(__name__)

_TURN_S = 0.002
"""Time in seconds after which what an event asks for is continued in another turn of the reactor."""


class ControllerRuntime:
    """Runs a `Controller` for one `Term`.

    `lost` is called when an error ends the runtime; the owner then calls `end`. `balance_interval_ms` is
    leader.imbalance.check.interval.seconds in milliseconds; 0 turns automatic balancing off.
    """

    def __init__(
        self,
        term: Term,
        policy: ControllerPolicy,
        clock: Clock,
        send: SendRequest,
        lost: Callable[[Exception], None],
        balance_interval_ms: int,
    ) -> None:
        self.term = term
        self.controller = Controller(term.broker_id, term.epoch, policy)
        self._policy = policy
        self._clock = clock
        self._turn_began_s = clock.seconds()
        self._send = send
        self._lost = lost
        self._balance_interval_ms = balance_interval_ms
        self._balance_timer: DelayedCall | None = None
        self._recovery_timer: DelayedCall | None = None
        self._yield_timer: DelayedCall | None = None
        self._events: deque[ControllerEvent] = deque()
        self._handling = False
        self._over = False
        self._channels: dict[int, ControllerChannel] = {}
        self._sent: list[tuple[int, Deferred[bool]]] = []
        self._summary = EventSummary(clock)
        self._tokens = itertools.count(1)
        self._waiting: dict[int, WaitingRequest] = {}
        self._time_limits = TimeLimits(clock)
        self._watched: dict[int, None] = {}
        self._reading_brokers = False
        self._read_brokers_again = False
        self._orders = ZnodeRequestWatch(term.session, self.put, self._failed)
        self._brokers: dict[int, LiveBroker] = {}
        """The brokers as last read."""
        self._reports = ReadingReports()
        self._unreadable = UnreadableTopics(
            term.session, policy.new_topic_id, self._reports, self.put, self._failed
        )

    def begin(self) -> None:
        """Read the cluster's state from ZooKeeper and take over."""
        self._handling = True
        ensureDeferred(self._begin()).addErrback(self._failed)

    def end(self) -> None:
        """The term has ended: close all channels and fail all waiting requests with NOT_CONTROLLER."""
        if self._over:
            return
        self._over = True
        self._orders.end()
        self._unreadable.end()
        for timer in (self._balance_timer, self._recovery_timer, self._yield_timer):
            if timer is not None and timer.active():
                timer.cancel()
        for channel in self._channels.values():
            channel.close()
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            request.fail(not_controller())

    def request(
        self,
        make_event: Callable[[int], ControllerEvent],
        keys: Sequence[Any],
        timeout_ms: int,
        late: Callable[[Any], Any],
    ) -> Deferred[dict[Any, Any]]:
        """Queue the event that `make_event(token)` returns; fires with a result for each key."""
        token = next(self._tokens)
        request = WaitingRequest(self._time_limits, keys, timeout_ms, late)
        self._waiting[token] = request
        request.done.addBoth(self._forget, token)
        self.put(make_event(token))
        return request.done

    def put(self, event: ControllerEvent) -> None:
        """Queue an event. Consecutive AlterPartitions events are merged."""
        last = self._events[-1] if self._events else None
        if isinstance(event, AlterPartitions) and isinstance(last, AlterPartitions):
            self._events[-1] = AlterPartitions([*last.requests, *event.requests])
        else:
            self._events.append(event)
        self._next()

    def _forget(self, result: Any, token: int) -> Any:
        self._waiting.pop(token, None)
        return result

    # Events, one at a time

    async def _begin(self) -> None:
        session = self.term.session
        # Read before the brokers, so that the record is never newer than the list of brokers.
        recorded, features = await read_record(session)
        brokers = await self._read_brokers()
        topics, unreadable = await read_topics(session, self._policy.new_topic_id)
        deleting = await read_deletions(session)
        first_epoch = await read_first_leader_epoch(session)
        _log.info(
            "controller epoch %d begins: %d brokers, %d topics",
            self.term.epoch,
            len(brokers),
            len(topics),
        )
        self._arm_balance()
        self._turn_began_s = self._clock.seconds()
        set_aside = {name: "; ".join(errors.values()) for name, errors in unreadable.items()}
        snapshot = Snapshot(brokers, topics, deleting, recorded, set_aside, first_epoch, features)
        await self._handle(Elected(snapshot))
        self._orders.begin()
        self._unreadable.begin(unreadable)
        self._handling = False
        self._next()

    def _next(self) -> None:
        if self._handling or self._over or not self._events:
            return
        self._handling = True
        self._turn_began_s = self._clock.seconds()
        ensureDeferred(self._handle_all()).addErrback(self._failed)

    async def _handle_all(self) -> None:
        while self._events and not self._over:
            await self._handle(self._events.popleft())
        self._handling = False

    async def _end_turn(self) -> None:
        """Go on in another turn of the reactor if this one has been long: clients are served meanwhile."""
        if self._clock.seconds() - self._turn_began_s < _TURN_S:
            return
        await pause(self._clock)
        self._turn_began_s = self._clock.seconds()

    async def _handle(self, event: ControllerEvent) -> None:
        self._sent = []
        self._summary = EventSummary(self._clock)
        steps = self.controller.handle(event)
        result: Any = None
        while not self._over:
            try:
                effect = steps.send(result)
            except StopIteration:
                break
            performed = ensureDeferred(self._perform(effect))
            has_waited = not performed.called
            result = await performed
            if has_waited:
                self._turn_began_s = self._clock.seconds()
            await self._end_turn()
        if isinstance(event, Elected | BrokersChanged) and not self._over:
            self._summary.finish(sorted(self._channels))

    async def _perform(self, effect: ControllerEffect) -> Any:
        match effect:
            case WriteStates():
                written = await writes.write_states(self.term, effect.writes, self._clock)
                self._summary.count_states(len(written))
                return written
            case CreateTopic():
                return await writes.create_topic(self.term, effect)
            case WriteAssignments():
                await writes.write_assignments(self.term, effect.topics)
            case ReadZnodeRequest():
                return await read_znode_request(self.term.session, effect.request)
            case RemoveZnodeRequests():
                await writes.remove_znode_requests(self.term, effect.paths)
            case WriteReassignmentZnode():
                await writes.write_reassignment_znode(self.term, effect.targets)
            case MarkDeleted():
                await writes.mark_deleted(self.term, effect.names)
            case RemoveTopic():
                return await writes.remove_topic(self.term, effect.name, self._clock)
            case SetBrokers():
                self._set_brokers(effect.brokers)
            case Pause():
                await pause(self._clock)
            case CheckRecovery():
                self._recovery_timer = self._clock.callLater(effect.after_s, self.put, RecoveryCheckDue())
            case AskToYieldLater():
                self._yield_timer = self._clock.callLater(effect.after_s, self.put, YieldDue())
            case RecordBrokers():
                await writes.record_brokers(self.term, effect.epochs, effect.features)
            case SendToBrokers():
                for broker_id, request in effect.requests:
                    answered = self._channels[broker_id].send(request)
                    self._summary.count_request(request, answered)
                    self._sent.append((broker_id, answered))
            case AnswerRequest():
                self._answer(effect)
        return None

    def _failed(self, failure: Failure) -> None:
        if self._over:
            return
        error = failure.value
        if isinstance(error, BadZnode):
            _log.error("this broker gives up the controller's term and reads everything again: %s", error)
        elif not isinstance(error, SessionExpired | writes.ControllerMoved):
            _log.error("the controller failed; this broker gives up the term", exc_info=raised(failure))
        self._lost(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    # Effects

    def _set_brokers(self, brokers: dict[int, LiveBroker]) -> None:
        for broker_id, channel in list(self._channels.items()):
            if broker_id not in brokers or brokers[broker_id].epoch != channel.broker_epoch:
                self._channels.pop(broker_id).close()
        for broker_id, broker in brokers.items():
            if broker_id not in self._channels:
                self._channels[broker_id] = ControllerChannel(
                    broker_id, broker.epoch, self._send, self._clock, self._broker_answered
                )

    def _broker_answered(
        self, broker_id: int, broker_epoch: int, request: BrokerRequest, response: BrokerResponse
    ) -> None:
        self.put(BrokerAnswered(broker_id, broker_epoch, request, response))

    def _answer(self, answer: AnswerRequest) -> None:
        request = self._waiting.get(answer.token)
        if request is None:
            return  # It has timed out.
        if answer.is_provisional:
            request.answer_at_timeout(answer.key, answer.result)
        elif answer.after_brokers_answered:
            request.answer_after(answer.key, answer.result, self._sent, answer.needed)
        else:
            request.answer(answer.key, answer.result)

    # Watches and timers

    async def _read_brokers(self) -> dict[int, LiveBroker]:
        self._brokers, errors = await read_brokers(
            self.term.session, self._brokers_changed, self._watch_for, self._brokers
        )
        paths = [broker_path(broker_id) for broker_id in self._brokers]
        self._reports.readable([path for path in paths if path not in errors])
        self._reports.unreadable(
            errors,
            "Until it can be read the broker counts as gone, unless this controller knew it before. "
            "Restart the broker, or remove the znode if no such broker runs",
        )
        return self._brokers

    def _watch_for(self, broker_id: int) -> Callable[[WatchEvent], None] | None:
        """A watch for one broker's znode, or None if there is one already."""
        if broker_id in self._watched:
            return None
        self._watched[broker_id] = None

        def changed(event: WatchEvent) -> None:
            self._watched.pop(broker_id, None)
            self._brokers_changed(event)

        return changed

    def _brokers_changed(self, event: WatchEvent) -> None:
        if self._over:
            return
        if self._reading_brokers:
            self._read_brokers_again = True
            return
        self._reading_brokers = True
        ensureDeferred(self._read_changed_brokers()).addErrback(self._failed)

    async def _read_changed_brokers(self) -> None:
        while True:
            self._read_brokers_again = False
            brokers = await self._read_brokers()
            if not self._read_brokers_again:
                break
        self._reading_brokers = False
        self.put(BrokersChanged(brokers))

    def _arm_balance(self) -> None:
        if self._balance_interval_ms > 0:
            self._balance_timer = self._clock.callLater(self._balance_interval_ms / 1000, self._balance)

    def _balance(self) -> None:
        self.put(BalanceDue())
        self._arm_balance()
