"""A lease: resources that one process owns and renews, by the own API.

    with Lease({"bootstrap.servers": "localhost:9092"}, "scheduler", ["leader"], wait_ms=FOR_EVER) as lease:
        lead(lease.generation("leader"))

A lease has connections of its own. That suits names, and partitions that another process writes (`writer`).
To write partitions from this process use `clients.exclusive_producer`, which sends its
claim on the connections of its records.

A background thread claims and renews. Without that thread (`is_threaded` false) the application must call
`poll` at least three times in each session timeout. If the brokers' `own.ping.timeout.ms` (3 s by default) is
shorter, it counts instead, because they end the session of an owner so soon that ignores another claim.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from holdfast_log.clients.arguments import (
    A_FUNCTION,
    A_NAME,
    A_TIMEOUT,
    A_WAIT,
    FOR_SIMULATIONS,
    PROPERTIES,
    checked,
)
from holdfast_log.clients.config import Properties, admin_settings
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.errors import ClosedError, RequestTimeoutError, with_cause
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.ownership.arguments import (
    A_CLAIM_WAIT,
    A_RESOURCE,
    GENERATIONS,
    OF_OWNERS,
    RESOURCES,
)
from holdfast_log.clients.ownership.claim import ClaimSettings, error_of
from holdfast_log.clients.ownership.claim_requests import NO_WRITER, OwnDialect, Writer
from holdfast_log.clients.ownership.claims import OwnershipClaims
from holdfast_log.clients.ownership.events import ClaimState, OwnedResource, OwnershipEvent
from holdfast_log.protocol.messages.ownership import IF_FREE, Access, ResourceStanding

SESSION_TIMEOUT_MS = 10_000
_IDLE_WAIT_MS = 60_000
_CLOSE_MS = 5_000
_EVENTS_MAX = 1_000


class Lease:
    """Resources of one group, for this process alone.

    `generation` is what the claim names, for all resources or for each: IF_FREE takes only what is free, 0
    takes the resource and restarts its generations, any other takes it unless a higher one is in force. Only
    a claim with IF_FREE waits for resources that another owner has: `wait_ms` for all together, 0 for not at
    all, FOR_EVER for no limit. `owner_id` names the owner to others; the default is a random one. Two leases
    with one `owner_id` exclude each other. The thread that runs the loop calls `on_event` for every event;
    the callback must neither block nor call the lease.

    All resources are granted, or none. A lost resource is not claimed again: create another lease for it.
    Raises ConfigError, ValueError, and TypeError for arguments of a wrong type.
    """

    @checked(
        properties=PROPERTIES,
        group=A_NAME,
        resources=RESOURCES,
        access=OF_OWNERS["access"],
        generation=GENERATIONS,
        session_timeout_ms=OF_OWNERS["session_timeout_ms"],
        wait_ms=A_CLAIM_WAIT,
        owner_id=OF_OWNERS["owner_id"],
        writer=OF_OWNERS["writer"],
        on_event=A_FUNCTION,
        **FOR_SIMULATIONS,
    )
    def __init__(
        self,
        properties: Properties,
        group: str,
        resources: Iterable[OwnedResource],
        *,
        access: Access = Access.WRITE,
        generation: int | Mapping[OwnedResource, int] = IF_FREE,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        wait_ms: int = 0,
        owner_id: str | None = None,
        writer: Writer = NO_WRITER,
        on_event: Callable[[OwnershipEvent], object] = lambda _: None,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        is_threaded: bool = True,
    ) -> None:
        settings = admin_settings(properties)
        self.owner_id = owner_id or str(uuid.uuid4())
        self._connection = Connection(
            settings["bootstrap.servers"], settings, network=network, rng=rng, kind="lease"
        )
        self._network = self._connection.network
        dialect = OwnDialect(group, self.owner_id, session_timeout_ms, access, writer)
        third_ms = settings["request.timeout.ms"] // 3
        claim_settings = ClaimSettings(
            session_timeout_ms=session_timeout_ms,
            retry_backoff_ms=settings["retry.backoff.ms"],
            held_wait_ms=third_ms,
            queued_wait_ms=third_ms,
        )
        generations = {
            resource: generation if isinstance(generation, int) else generation.get(resource, IF_FREE)
            for resource in resources
        }
        self._claims = OwnershipClaims(
            self._connection,
            dialect,
            generations,
            claim_settings,
            wait_ms=wait_ms,
            answer_timeout_ms=2 * third_ms,
        )
        self._on_event = on_event
        self._events: deque[OwnershipEvent] = deque(maxlen=_EVENTS_MAX)
        self._failure: Exception | None = None
        self._lock = threading.Condition(threading.RLock())
        self._is_closed = False
        self._is_threaded = is_threaded
        self._thread: threading.Thread | None = None

    # Claiming -----------------------------------------------------------------------------------------

    @checked(timeout_ms=A_TIMEOUT)
    def claim(self, timeout_ms: int | None = None) -> None:
        """Wait until all resources are held.

        Raises OwnershipRefusedError or another BrokerError if they are refused, and RequestTimeoutError if
        `wait_ms` has passed. Raises RequestTimeoutError after `timeout_ms` too; the claim then continues.
        """
        self._start()
        with self._lock:
            self._wait_until(lambda: self._claims.is_held or self._claims.error is not None, timeout_ms)
            self._raise_problem()
            if not self._claims.is_held:
                because = self._claims.last_error
                waited = f"not granted within {timeout_ms} ms"
                raise RequestTimeoutError(with_cause(waited, self._claims.waits_for())) from because

    @checked(timeout_ms=A_WAIT)
    def poll(self, timeout_ms: int = 0) -> list[OwnershipEvent]:
        """The last 1,000 events since the last call. Waits up to `timeout_ms` for a first event."""
        self._start()
        with self._lock:
            self._wait_until(lambda: bool(self._events) or self._failure is not None, timeout_ms)
            events = list(self._events)
            self._events.clear()
        return events

    # Looking ------------------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether all resources are held, and every broker received a renewal so recently that it keeps the
        session: within the session timeout, or `own.ping.timeout.ms` if that is shorter.

        This is no proof, because time passes after the check. Fence what must never happen twice: by the
        generation, or by a broker that refuses the records of a former owner.
        """
        with self._lock:
            return self._failure is None and self._claims.is_valid(self._network.now_ms())

    @property
    def resources(self) -> list[OwnedResource]:
        """The leased resources, in ascending order."""
        return list(self._claims.by_resource)

    def check(self) -> None:
        """Raise the reason if the lease is lost or was refused: OwnershipFencedError and others."""
        with self._lock:
            self._raise_problem()

    @checked(resource=A_RESOURCE)
    def state(self, resource: OwnedResource) -> ClaimState:
        """The state of the claim of one resource. Raises KeyError for one that is not leased here."""
        with self._lock:
            return self._claims.by_resource[resource].state

    @checked(resource=A_RESOURCE)
    def generation(self, resource: OwnedResource) -> int:
        """The generation that was granted. Raises the reason if none was, and ClosedError before."""
        return self._grant(resource).generation

    def _grant(self, resource: OwnedResource) -> ResourceStanding:
        with self._lock:
            claim = self._claims.by_resource[resource]
            if claim.grant is None:
                raise error_of(claim) if claim.has_ended else ClosedError(f"{resource} is not granted yet")
            return claim.grant

    @checked(resource=A_RESOURCE)
    def token(self, resource: OwnedResource) -> int:
        """A number for storage that knows nothing of Holdfast: every later grant of the resource has a higher
        one, whatever happens to generations, topics and brokers. The storage keeps the highest that it has
        seen, and refuses lower ones (docs/tokens.md). Raises what `generation` raises."""
        return self._grant(resource).incarnation

    def fence(self) -> OwnerFence:
        """What lets other processes write to the leased partitions, or read them, as this lease does: give it
        to their Producer or Consumer. It holds as long as the grants, which this lease has to keep.

        It has this lease's secret: a process that has it can also end the lease. Raises the reason if the
        lease was refused or lost, ClosedError before it is granted, ValueError if it has only names.
        """
        with self._lock:
            return self._claims.fence()

    @checked(resource=A_RESOURCE)
    def fence_offset(self, resource: OwnedResource) -> int | None:
        """Where the partition ended when it was granted: no earlier owner writes there or later. None for
        names."""
        with self._lock:
            grant = self._claims.by_resource[resource].grant
            return None if grant is None or grant.fence_offset < 0 else grant.fence_offset

    # The loop -----------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._is_closed:
            raise ClosedError("the lease is closed")
        if self._is_threaded and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-lease", daemon=True)
            self._thread.start()

    @checked(max_wait_ms=A_WAIT)
    def turn(self, max_wait_ms: int) -> None:
        """One turn of the loop, for a lease without a thread; waits at most `max_wait_ms`."""
        now_ms = self._network.now_ms()
        with self._lock:
            calls = self._claims.calls(now_ms)
            due_ms = self._claims.next_event_ms(now_ms)
        wait_ms = max_wait_ms if due_ms is None else max(0, min(max_wait_ms, due_ms - now_ms))
        replies = self._connection.poll(wait_ms, *calls)
        now_ms = self._network.now_ms()
        with self._lock:
            for reply in replies:
                self._claims.handle(reply, now_ms)
            self._gather()

    def _gather(self) -> None:
        events = self._claims.take_events()
        self._events += events
        for event in events:
            self._on_event(event)
        self._lock.notify_all()

    def _run(self) -> None:
        try:
            while not (self._is_closed and self._claims.has_ended):
                self.turn(_IDLE_WAIT_MS)
        except Exception as error:
            with self._lock:
                self._failure = error
                self._lock.notify_all()

    def _wait_until(self, is_so: Callable[[], bool], timeout_ms: int | None) -> None:
        """Wait until a condition holds. The lock must be held."""
        if self._thread is not None:
            self._network.wake()
            self._lock.wait_for(
                lambda: is_so() or self._failure is not None,
                None if timeout_ms is None else timeout_ms / 1000,
            )
            return
        deadline_ms = None if timeout_ms is None else self._network.now_ms() + timeout_ms
        while True:
            left_ms = _IDLE_WAIT_MS if deadline_ms is None else deadline_ms - self._network.now_ms()
            self.turn(0 if is_so() else max(0, left_ms))
            if is_so() or left_ms <= 0:
                return

    def _raise_problem(self) -> None:
        problem = self._failure or self._claims.error
        if problem is not None:
            raise problem

    # The end ------------------------------------------------------------------------------------------

    @checked(timeout_ms=A_WAIT)
    def close(self, timeout_ms: int = _CLOSE_MS) -> None:
        """Release all resources: the next owner in the queue has them at once. May be called again."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._claims.release()
            self._wait_until(lambda: self._claims.has_ended, timeout_ms)
            if not self._claims.has_ended:
                self._abandon()
        if self._thread is not None:
            self._network.wake()
            self._thread.join()
        self._connection.close()

    def _abandon(self) -> None:
        """Give up without an answer: the brokers notice that the connections close."""
        for claim in self._claims.by_resource.values():
            claim.abandon()

    def __enter__(self) -> Lease:
        try:
            self.claim()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
