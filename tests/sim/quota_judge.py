"""Judges client quotas: nobody uses more than allowed, nobody is delayed without need or for too long.

The judge takes the limits from the znodes and measures use by the requests and responses of the brokers. It
shares no code with the brokers' sensors. It knows which limits a broker may have in force: one of those that
the znodes had since the latest time at which the broker must have followed them (`_grace_s`). A broker that
was started, stood still or had no session in ZooKeeper within that time may have any earlier limits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from holdfast_log.broker.network.connection import ReplySlot, ServerConnection
from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.broker.requests.calls import RemoteCall
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.coordinator.znodes.brokers import broker_path
from holdfast_log.coordinator.znodes.configs import config_path, decode_config
from holdfast_log.coordinator.zookeeper.interface import WriteOperation
from holdfast_log.protocol.headers import decode_request_header
from holdfast_log.protocol.messages.fetch import FetchResponse
from holdfast_log.protocol.messages.produce import ProduceRequest
from tests.models.zookeeper import NORMAL_DELAY_MS_MAX
from tests.sim.cluster import Cluster, Machine
from tests.sim.history import History
from tests.sim.plan import METERED_READER, METERED_WRITERS, QUOTA_WINDOWS, QuotasPlan
from tests.sim.quota_setter import ANONYMOUS

_KEYS = (QuotaKey.PRODUCE, QuotaKey.FETCH)
_BROKER = re.compile(r"(broker|controller|group-coordinator|replica-fetcher)-\d.*")
"""Client ids of brokers."""
_DEFAULT = "<default>"
_LOOK_S = 0.1
_EFFECT_S = 1.0
"""How long after a change of a znode a quota takes effect on every broker at the latest, in seconds."""
_MESSAGES = 18
"""How many messages to or from ZooKeeper a broker may wait for until it has read a change."""
_PROMPT_S = 0.2
"""How much later than announced the end of a delay may be, in seconds."""
_EXACT_S = 0.002
_BATCH_BYTES_MAX = 4096
"""A fetch returns one batch even if it is larger than the quota of one window."""

Limits = Mapping[tuple[str, QuotaKey], float]
"""Limits per second by the name of their znode below /config, and key."""


@dataclass(slots=True)
class _Use:
    """What one client has used at one process of a broker."""

    events: list[tuple[float, int]] = field(default_factory=list)
    """(time in s, bytes)."""
    connections: dict[int, float] = field(default_factory=dict)
    """The times of the last use by connection."""
    level: float = 0.0
    """Bytes beyond what the limit has allowed since the first use."""
    level_s: float = 0.0
    largest: int = 0

    def between(self, from_s: float, until_s: float) -> int:
        return sum(size for at_s, size in self.events if from_s <= at_s <= until_s)


@dataclass(slots=True)
class _Delay:
    """Until when a connection is not read, and since when; both in seconds."""

    machine: Machine
    life: int
    client: str
    until_s: float
    since_s: float
    muted_s: float
    """The time of the last mute."""
    is_over: bool = False
    """Whether a request was handled before its end."""


class QuotaJudge:
    """Judges what brokers do for the quotas of a plan; nothing if it has none."""

    def __init__(self, cluster: Cluster, history: History, plan: QuotasPlan | None) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._history = history
        self._plan = plan
        self._states: list[tuple[float, Limits]] = [(0.0, {})]
        """The limits that the znodes have had, each from a time in s on."""
        self._uses: dict[tuple[str, int, str, QuotaKey], _Use] = {}
        self._delays: dict[ServerConnection, _Delay] = {}
        self._muted_by: dict[ReplySlot, float] = {}
        """Requests that had their connections muted before they were answered, with the end in s."""
        self._handling: tuple[ServerConnection, ReplySlot] | None = None
        """The request that is being handled. It may complete waiting requests of other connections."""
        self._unjudged: list[tuple[Machine, int, str, float, float]] = []
        """Mutes: machine, number of its process, client, time in s, length in s."""
        self._calm: dict[str, tuple[object, float]] = {}
        """For each machine what identifies its undisturbed life, and since when it lasts, in s."""
        self._slow_until_s = 0.0
        """Until when a write that ZooKeeper delays may hold up what a session sent after it, in s."""
        self._entities: list[tuple[str, str]] = []
        if plan is not None:
            names = dict.fromkeys(change.client or _DEFAULT for change in plan.changes)
            self._entities = [
                entity
                for name in names
                for entity in (("clients", name), ("users", f"{ANONYMOUS}/clients/{name}"))
            ]
            cluster.zookeeper.observers.append(self._written)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, judge every request, response and mute."""
        if self._plan is None:
            yield
            return
        with ExitStack() as stack:
            for owner, name, judged in (
                (Dispatcher, "dispatch", self._dispatch),
                (RemoteCall, "answer", self._answer),
                (ServerConnection, "mute", self._mute),
            ):
                stack.enter_context(_wrapped(owner, name, judged))
            self._world.clock.callLater(_LOOK_S, self._look)
            yield

    # The limits

    def _written(self, operations: Sequence[WriteOperation]) -> None:
        if not any(each.path.startswith(("/config/clients", "/config/users")) for each in operations):
            return
        zookeeper, found = self._cluster.zookeeper, {}
        for kind, name in self._entities:
            path = config_path(kind, name)
            if zookeeper.exists(path):
                for key, text in decode_config(path, zookeeper.read(path).data).items():
                    found[f"{kind}/{name}", QuotaKey(key)] = float(text)
        if found != self._states[-1][1]:
            self._states.append((self._world.seconds(), found))

    @property
    def _grace_s(self) -> float:
        delay_ms = self._cluster.zookeeper.delay_ms_max
        return _EFFECT_S + (_MESSAGES * delay_ms / 1000 if delay_ms > NORMAL_DELAY_MS_MAX else 0.0)

    def _possible(self, machine: Machine, at_s: float) -> list[Limits]:
        """The limits that a broker may have in force."""
        known, since_s = self._calm.get(machine.name, (None, math.inf))
        from_s = at_s - self._grace_s
        if known is None or known != self._life(machine) or since_s > from_s:
            return [state for _, state in self._states]
        begins = [begin_s for begin_s, _ in self._states[1:]] + [math.inf]
        return [
            state
            for (begin_s, state), end_s in zip(self._states, begins, strict=True)
            if end_s > from_s and begin_s <= at_s
        ]

    def _life(self, machine: Machine) -> object:
        """Identifies the time in which a broker runs and is in touch with ZooKeeper; None if it does not, or
        if ZooKeeper delays writes."""
        zookeeper, client = self._cluster.zookeeper, machine.client
        if zookeeper.slow_share:
            self._slow_until_s = self._world.seconds() + 2 * zookeeper.slow_ms_max / 1000
        if self._world.seconds() < self._slow_until_s:
            return None
        path = broker_path(machine.broker_id)
        if not machine.is_running or machine.is_stopping or client is None or not zookeeper.exists(path):
            return None
        session, znode = client.session, zookeeper.read(path)
        is_behind = session.server.tree is not zookeeper.tree
        is_waiting = session.is_waiting and zookeeper.delay_ms_max <= NORMAL_DELAY_MS_MAX
        if not session.connected or is_behind or is_waiting or znode.ephemeral_owner != session.session_id:
            return None
        usual = self._grace_s
        return machine.life, machine.awake_since_s, session.session_id, session._connection, usual

    # What brokers do

    def _dispatch(
        self, method: Any, dispatcher: Dispatcher, connection: ServerConnection, frame: Any, reply: ReplySlot
    ) -> None:
        machine, now_s = self._machine(), self._world.seconds()
        if machine is None:
            method(dispatcher, connection, frame, reply)
            return
        header, _ = decode_request_header(frame)
        client = header.client_id or ""
        self._check_kept(connection, now_s)
        if header.api_key == ProduceRequest.api.key:
            self._used(machine, connection, client, QuotaKey.PRODUCE, len(frame), now_s)
        self._handling = connection, reply
        try:
            method(dispatcher, connection, frame, reply)
        finally:
            self._handling = None

    def _check_kept(self, connection: ServerConnection, now_s: float) -> None:
        """Check that no request is handled during a delay, unless a change of quotas has shortened it. The
        delay is over then: it does not add to the next one."""
        delay = self._delays.get(connection)
        if delay is None or now_s >= delay.until_s - _EXACT_S:
            return
        delay.is_over = True
        if self._states[-1][0] < delay.since_s and len(self._possible(delay.machine, delay.since_s)) == 1:
            self._history.violation(
                f"{delay.machine.name} handled a request of {delay.client} {delay.until_s - now_s:.3f} s "
                "before the end of the client's throttle time"
            )

    def _mute(self, method: Any, connection: ServerConnection, delay_ms: int) -> None:
        method(connection, delay_ms)
        machine, now_s = self._machine(), self._world.seconds()
        if machine is None or delay_ms <= 0 or connection.is_closed:
            return
        client = connection.client_id
        if _BROKER.fullmatch(client):
            self._history.violation(f"{machine.name} delays {client}, a broker, by {delay_ms} ms")
        until_s = now_s + delay_ms / 1000
        known = self._delays.get(connection)
        if known is None or known.is_over or known.until_s < now_s:
            self._delays[connection] = _Delay(machine, machine.life, client, until_s, now_s, now_s)
        else:
            known.until_s, known.muted_s = max(known.until_s, until_s), now_s
        if self._handling is not None and self._handling[0] is connection:
            self._muted_by[self._handling[1]] = until_s
        self._unjudged.append((machine, machine.life, client, now_s, delay_ms / 1000))

    def _answer(self, method: Any, call: RemoteCall, response: Any) -> None:
        method(call, response)
        machine, now_s = self._machine(), self._world.seconds()
        connection = call.connection
        muted_until_s = self._muted_by.pop(call._reply, 0.0)
        if machine is None or connection.is_closed:
            return
        delay = self._delays.get(connection)
        if isinstance(response, FetchResponse):
            size = sum(len(row.records or b"") for topic in response.responses for row in topic.partitions)
            if size and not _BROKER.fullmatch(call.client_id):
                self._used(machine, connection, call.client_id, QuotaKey.FETCH, size, now_s)
            if delay is not None and delay.muted_s == now_s:
                muted_until_s = max(muted_until_s, delay.until_s)
        told_s = getattr(response, "throttle_time_ms", 0) / 1000
        if told_s and (delay is None or delay.until_s < now_s + told_s - _EXACT_S):
            self._history.violation(
                f"{machine.name} told {call.client_id} {told_s} s, and delays it for less"
            )
        left_s = muted_until_s - now_s
        if (
            hasattr(response, "throttle_time_ms")
            and len(self._possible(machine, now_s)) == 1
            and told_s < left_s - _EXACT_S
        ):
            self._history.violation(
                f"{machine.name} told {call.client_id} {told_s} s, and delays it for {left_s:.3f} s"
            )

    def _used(
        self,
        machine: Machine,
        connection: ServerConnection,
        client: str,
        key: QuotaKey,
        size: int,
        now_s: float,
    ) -> None:
        """Count a use, and check that the client has not used more than its limit allows.

        In any time of t seconds a client may use its limit for t seconds, that of all windows, which it may
        have saved up, and one request for each connection. A new connection may send one request whatever
        the client has used.
        """
        use = self._uses.setdefault((machine.name, machine.life, client, key), _Use())
        use.events.append((now_s, size))
        use.largest = max(use.largest, size)
        is_first = connection.id not in use.connections
        use.connections[connection.id] = now_s
        limits = {_limit(state, client, key) for state in self._possible(machine, now_s)}
        limit = limits.pop()
        elapsed_s, use.level_s = now_s - use.level_s, now_s
        if limits or limit is None:
            use.level = 0.0
            return
        use.level = max(0.0, use.level - limit * elapsed_s) + (0 if is_first else size)
        if key is QuotaKey.FETCH:
            slack = limit + 2 * _BATCH_BYTES_MAX
        else:
            recent = sum(at_s >= now_s - QUOTA_WINDOWS - 2 for at_s in use.connections.values())
            slack = (recent + 1) * use.largest
        if use.level > limit * (QUOTA_WINDOWS + 1) + slack:
            self._history.violation(
                f"{client} used {use.level:.0f} bytes more on {machine.name} than its {key} of {limit:g}"
            )
            use.level = 0.0

    def _machine(self) -> Machine | None:
        """The machine whose broker is running now."""
        running = self._world.running
        return next((each for each in self._cluster.machines if each.name == running and each.is_up), None)

    # What must become true

    def _look(self) -> None:
        now_s = self._world.seconds()
        self._world.clock.callLater(_LOOK_S, self._look)
        for machine in self._cluster.machines:
            life = self._life(machine)
            known, _ = self._calm.get(machine.name, (None, 0.0))
            if life is None or life != known:
                self._calm[machine.name] = (life, now_s)
            elif len(self._possible(machine, now_s)) == 1:
                self._check_in_force(machine)
        unjudged, self._unjudged = self._unjudged, []
        for machine, life, client, at_s, delay_s in unjudged:
            needed_s = self._needed_s(machine, life, client, at_s - QUOTA_WINDOWS - 1, at_s)
            if delay_s > needed_s + _EXACT_S:
                self._history.violation(
                    f"{machine.name} delays {client} by {delay_s:.3f} s; its use requires {needed_s:.3f} s"
                )
        for connection in list(self._delays):
            self._check_delay(connection, now_s)

    def _check_in_force(self, machine: Machine) -> None:
        """Check that the present limits are in force on a broker."""
        assert machine.broker is not None and machine.broker.node is not None
        limits, wanted = machine.broker.node.quotas.limits, self._states[-1][1]
        for client in (*METERED_WRITERS, METERED_READER, "any other"):
            for key in _KEYS:
                found = limits.find(key, ANONYMOUS, client)
                has = None if found is None else found.limit
                expected = _limit(wanted, client, key)
                if has != expected:
                    self._history.violation(
                        f"{machine.name} limits {client} to {has} of {key}, {self._grace_s:.1f} s after that "
                        f"was set to {expected}"
                    )
                    self._calm.pop(machine.name, None)
                    return

    def _needed_s(self, machine: Machine, life: int, client: str, from_s: float, at_s: float) -> float:
        """The longest delay at a time, in s, that a client's use since `from_s` may require. A client may use
        the limit of one window at once."""
        needed_s = 0.0
        for key in _KEYS:
            limits = [_limit(state, client, key) for state in self._possible(machine, at_s)]
            lowest = min((limit for limit in limits if limit is not None), default=math.inf)
            use = self._uses.get((machine.name, life, client, key))
            if use is not None:
                needed_s = max(needed_s, use.between(from_s, at_s) / lowest)
        return needed_s if needed_s > 1 else 0.0

    def _check_delay(self, connection: ServerConnection, now_s: float) -> None:
        """Check that a delay ends in time, and as soon as a change of quotas makes it needless."""
        delay = self._delays[connection]
        machine = delay.machine
        if connection.is_closed or machine.life != delay.life or not machine.is_up:
            del self._delays[connection]
        elif not machine.is_running or machine.awake_since_s > now_s - _PROMPT_S:
            return
        elif connection.is_muted and now_s > delay.until_s + _PROMPT_S:
            del self._delays[connection]
            self._history.violation(
                f"{machine.name} does not read from {delay.client}, {now_s - delay.until_s:.3f} s after the "
                "end of its throttle time"
            )
        elif (
            connection._unmute is not None
            and delay.muted_s < self._states[-1][0]
            and len(self._possible(machine, now_s)) == 1
        ):
            assert machine.process is not None
            left_s = connection._unmute.getTime() - machine.process.clock.seconds()
            from_s = delay.muted_s - QUOTA_WINDOWS - 1
            needed_s = self._needed_s(machine, delay.life, delay.client, from_s, now_s)
            if left_s > needed_s + _PROMPT_S:
                del self._delays[connection]
                self._history.violation(
                    f"{machine.name} still delays {delay.client} by {left_s:.3f} s after a change of quotas; "
                    f"its use requires {needed_s:.3f} s"
                )


def _limit(state: Limits, client: str, key: QuotaKey) -> float | None:
    """The limit of a client: that of the user's client id, else of the client id, else of all others."""
    for name in (
        f"users/{ANONYMOUS}/clients/{client}",
        f"clients/{client}",
        f"clients/{_DEFAULT}",
    ):
        if (name, key) in state:
            return state[name, key]
    return None


def _wrapped(owner: type, name: str, judged: Any) -> Any:
    method = getattr(owner, name)

    def call(self: Any, *arguments: Any) -> None:
        judged(method, self, *arguments)

    return mock.patch.object(owner, name, call)
