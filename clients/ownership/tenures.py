"""The resources of one owner: claimed in order, all or none, and kept together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clients.connection.connection import Connection
from clients.connection.link import Call, Reply
from clients.connection.metadata import NO_NODE
from clients.ownership.events import OwnedResource, OwnershipEvent, TenureState, split
from clients.ownership.homes import CoordinatorHome, Home, LeaderHome
from clients.ownership.tenure import Tenure, TenureSettings, error_of
from clients.ownership.ways import Ask, Question, Way, request_for, standings_in


@dataclass(slots=True, eq=False)
class _Round:
    """Those that ask a broker the same question together."""

    of: Tenures
    node: int
    question: Question
    tenures: list[Tenure]
    due_ms: int


class Tenures:
    """The resources, by what their claims name as generation, in ascending order.

    Its host sends `calls`, hands in replies by `handle`, and looks again at `next_event_ms`. An answer to a
    claim may take `answer_timeout_ms`.

    All or none: those that one broker decides about are claimed by one request, of which that broker grants
    all or none, broker after broker; where one is refused, those that were granted are released. A claim that
    may wait holds what comes before it while it does. So it takes nothing that comes after it: one request
    claims only what is next in the order, and what is owned by another it waits for alone. Two owners that
    wait for the same resources thus never wait for each other.
    """

    def __init__(
        self,
        connection: Connection,
        way: Way,
        generations: Mapping[OwnedResource, int],
        settings: TenureSettings,
        *,
        wait_ms: int = 0,
        answer_timeout_ms: int,
    ) -> None:
        if not generations:
            raise ValueError("no resource to own")
        self._way = way
        self._answer_timeout_ms = answer_timeout_ms
        # Where no answer comes the connection has to go: the session ends with silence.
        self._call_timeout_ms = max(answer_timeout_ms, way.session_timeout_ms)
        self._waiting: dict[int, _Round] = {}
        """Of every broker, the renewal that waits there."""
        self._names_home = CoordinatorHome(way.group, settings.retry_backoff_ms)
        self.tenures: dict[OwnedResource, Tenure] = {}
        for resource in sorted(generations, key=split):
            home: Home = self._names_home
            if not isinstance(resource, str):
                home = LeaderHome(connection, resource)
            self.tenures[resource] = Tenure(
                connection, home, resource, settings, generation=generations[resource], wait_ms=wait_ms
            )

    # What hosts ask -----------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether all are, on the connections that there are."""
        return all(tenure.is_held for tenure in self.tenures.values())

    def is_valid(self, now_ms: int) -> bool:
        """Whether all are held, and no broker can have taken the owner for dead."""
        return all(tenure.is_valid(now_ms) for tenure in self.tenures.values())

    @property
    def has_ended(self) -> bool:
        """Whether all have."""
        return all(tenure.has_ended for tenure in self.tenures.values())

    @property
    def error(self) -> Exception | None:
        """Why one of them was lost or could not be had: the first that was."""
        ended = (TenureState.LOST, TenureState.REFUSED)
        return next((error_of(each) for each in self.tenures.values() if each.state in ended), None)

    @property
    def last_error(self) -> Exception | None:
        """Why the last attempt for one of them brought nothing, where that may pass."""
        errors = (tenure.last_error for tenure in self.tenures.values() if not tenure.is_held)
        return next((error for error in errors if error is not None), None)

    def release(self) -> None:
        """Let go of all."""
        for tenure in self.tenures.values():
            tenure.release()

    def take_events(self) -> list[OwnershipEvent]:
        """What has happened since the last call."""
        events: list[OwnershipEvent] = []
        for tenure in self.tenures.values():
            events += tenure.events
            tenure.events = []
        return events

    # Out ----------------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        """What to send now."""
        for tenure in self.tenures.values():
            tenure.look(now_ms)
        self._release_if_refused()
        calls: list[Call] = []
        due = [each for each in self._rounds() if each.due_ms <= now_ms]
        for asking in sorted(due, key=lambda each: each.question is Question.RENEW):
            if asking.question is not Question.RENEW and asking.node in self._waiting:
                calls.append(self._interruption(self._waiting.pop(asking.node)))
            calls.append(self._call(asking, now_ms))
        return calls + self._names_home.calls(now_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        """When `calls` has something by itself, or events are to be told."""
        if any(tenure.events for tenure in self.tenures.values()):
            return now_ms
        times: list[int | None] = [max(now_ms, each.due_ms) for each in self._rounds()]
        times.append(self._names_home.next_event_ms())
        times += (tenure.gives_up_at_ms for tenure in self.tenures.values())
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def _call(self, asking: _Round, now_ms: int) -> Call:
        is_alone = len(asking.tenures) == 1
        asks = [tenure.ask(now_ms, is_alone=is_alone) for tenure in asking.tenures]
        call = self._call_with(asks, asking)
        for tenure in asking.tenures:
            tenure.asked(call, now_ms)
        if asking.question is Question.RENEW and any(ask.wait_ms for ask in asks):
            self._waiting[asking.node] = asking
        return call

    def _interruption(self, waiting: _Round) -> Call:
        """What has a renewal answered that waits at a broker: answers leave in order, and that to the next
        question would wait behind it."""
        ask = Ask(Question.LOOK, waiting.tenures[0].resource)
        return self._call_with([ask], _Round(self, waiting.node, Question.LOOK, [], 0))

    def _call_with(self, asks: list[Ask], asking: _Round) -> Call:
        request = request_for(self._way, asks, self._answer_timeout_ms)
        return Call(asking.node, request, timeout_ms=self._call_timeout_ms, tag=asking)

    def _rounds(self) -> Iterator[_Round]:
        """What there is to ask, and when. Who asks the same broker the same question asks with the first."""
        together: dict[tuple[int, Question], list[Tenure]] = {}
        for tenure in self.tenures.values():
            question = tenure.question
            if question is not None and question is not Question.CLAIM:
                node = tenure.home.node()
                if node != NO_NODE:
                    together.setdefault((node, question), []).append(tenure)
        for (node, question), tenures in together.items():
            size = self._way.together_max if question is Question.RESUME else len(tenures)
            for start in range(0, len(tenures), size):
                some = tenures[start : start + size]
                yield _Round(self, node, question, some, min(tenure.due_ms for tenure in some))
        claimed = self._next_claimed()
        if claimed:
            due_ms = max(tenure.due_ms for tenure in claimed)
            yield _Round(self, claimed[0].home.node(), Question.CLAIM, claimed, due_ms)

    def _next_claimed(self) -> list[Tenure]:
        """Those that are to be claimed by one request; none while others come first."""
        wanting = (TenureState.CLAIMING, TenureState.QUEUED)
        wanted = [tenure for tenure in self.tenures.values() if tenure.state in wanting]
        if not wanted or wanted[0].question is not Question.CLAIM:
            return []
        nodes = [tenure.home.node() for tenure in wanted]
        may_wait = any(tenure.may_wait for tenure in wanted)
        if nodes[0] == NO_NODE or (NO_NODE in nodes and not may_wait):
            return []
        if wanted[0].must_queue:
            return wanted[:1]
        claimed: list[Tenure] = []
        for tenure, node in zip(wanted, nodes, strict=True):
            if node == nodes[0] and tenure.question is Question.CLAIM and not tenure.must_queue:
                claimed.append(tenure)
            elif may_wait:
                break
        return claimed[: self._way.together_max]

    # In -----------------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Take in a reply; whether it was to one of these calls."""
        asking = reply.call.tag
        if isinstance(asking, _Round) and asking.of is self:
            self._handle(asking, reply, now_ms)
        elif not self._is_found(reply, now_ms):
            return False
        self._release_if_refused()
        return True

    def _handle(self, asking: _Round, reply: Reply, now_ms: int) -> None:
        if self._waiting.get(asking.node) is asking:
            del self._waiting[asking.node]
        if reply.response is None:
            assert reply.error is not None
            for tenure in asking.tenures:
                if tenure.awaits(reply.call):
                    tenure.not_answered(reply.error, now_ms)
            return
        standings = standings_in(reply.response, [tenure.resource for tenure in asking.tenures])
        for tenure, standing in zip(asking.tenures, standings, strict=True):
            if tenure.awaits(reply.call):
                tenure.answered(standing, asking.node, reply.conversation, now_ms)

    def _is_found(self, reply: Reply, now_ms: int) -> bool:
        """Whether the reply tells where names are decided about, or that nobody will tell."""
        try:
            return self._names_home.handle(reply, now_ms)
        except Exception as error:
            for tenure in self.tenures.values():
                if tenure.home is self._names_home:
                    tenure.fail(error)
            return True

    def _release_if_refused(self) -> None:
        if any(tenure.state is TenureState.REFUSED for tenure in self.tenures.values()):
            self.release()
