"""The low-level client: sends requests to brokers by their ids, many at once, in one event loop.

    connection = Connection("localhost:9092")
    for reply in connection.poll(1000, Call(ANY_NODE, MetadataRequest(topics=None))):
        ...

As in the client rewrite, "Low-level RPC API": every `poll` is one turn of a select loop; it sends the
calls it is given and returns the replies that have arrived, which need not belong to those calls. `ask` sends
one request and waits for its response. Producer, consumer and admin client are built on this.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast_log.clients.arguments import (
    A_FLAG,
    A_FUNCTION,
    A_NAME,
    A_NETWORK,
    A_WAIT,
    AN_RNG,
    Kind,
    Refused,
    an_instance,
    checked,
    optional,
    several,
)
from holdfast_log.clients.config import ADMIN_ROWS, Properties, load_settings, split_address
from holdfast_log.clients.connection.backoff import Backoff
from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.connection.conversation import Authenticator, Conversation
from holdfast_log.clients.connection.link import Call, Link, LinkSettings, Reply
from holdfast_log.clients.connection.links import Links
from holdfast_log.clients.connection.network import (
    Channel,
    ClientNetwork,
    InterruptedCall,
    SocketChannel,
    SystemNetwork,
    interrupted,
)
from holdfast_log.clients.errors import (
    ClosedError,
    NoBrokerError,
    RequestTimeoutError,
    UnreachableError,
)
from holdfast_log.clients.feedback.connection_log import ConnectionLog
from holdfast_log.clients.feedback.events import Events, OnEvent
from holdfast_log.clients.feedback.traffic import Traffic
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import AuthenticationError
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from holdfast_log.clients.feedback.snapshots import ConnectionFeedback

ANY_NODE = -1
"""Send to the ready broker with the fewest pending calls."""
CONTROLLER = -2
"""Send to the cluster's controller."""
COORDINATOR = -3
"""Send to the broker to which `Connection.open_line` has opened a second connection."""

_SHORT_ABSENCE_MS = 1000
"""Longest time between two calls of `poll` that counts towards `bootstrap.timeout.ms`."""

R = TypeVar("R", bound=Response)


def _take_call(value: Any) -> Call:
    if not isinstance(value, Call) or not isinstance(value.request, Request):
        raise Refused("write Call(ANY_NODE, MetadataRequest(topics=None))")
    if type(value.node) is not int or not (value.timeout_ms is None or type(value.timeout_ms) is int):
        raise Refused("its node is a broker's id, and its timeout_ms is in ms or None, both int")
    return value


def _take_addresses(value: Any) -> Any:
    return A_NAME.take(value) if isinstance(value, str) else _ADDRESS_LIST.take(value)


_A_CALL = Kind("a Call of a request", _take_call)
_ADDRESS_LIST = several(A_NAME, "addresses (str)", "'localhost:9092'")
_ADDRESSES = Kind("host:port, more of them separated by commas", _take_addresses)


class Connection:
    """Connections to the brokers of one cluster. Only `wake` and `feedback` may be called by other threads.

    `settings` are connection properties besides the bootstrap servers (or checked settings that a client
    already has). `network` and `rng` are for simulations. `authenticator` is for SASL in another way than the
    settings `sasl.*` have it. At its end `poll`
    calls `on_event` for what has happened (`clients.feedback.events`). Warnings about connections go to the
    logger "holdfast.KIND.CLIENT_ID". `raises_unreachable` is whether `poll` raises UnreachableError; a client
    whose loop must continue asks `unreachable` instead.
    """

    @checked(
        bootstrap=_ADDRESSES,
        settings=optional(an_instance(Mapping, "a dict of properties")),
        network=optional(A_NETWORK),
        rng=optional(AN_RNG),
        authenticator=optional(A_FUNCTION),
        allow_auto_topic_creation=A_FLAG,
        on_event=optional(A_FUNCTION),
        kind=A_NAME,
        raises_unreachable=A_FLAG,
    )
    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, Any] | None = None,
        *,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        authenticator: Authenticator | None = None,
        allow_auto_topic_creation: bool = False,
        on_event: OnEvent | None = None,
        kind: str = "connection",
        raises_unreachable: bool = True,
    ) -> None:
        values = _checked(bootstrap, settings or {})
        self.network: ClientNetwork = network or SystemNetwork(
            secure=_tls_channels(values),
            send_buffer_bytes=values["send.buffer.bytes"],
            receive_buffer_bytes=values["receive.buffer.bytes"],
        )
        self.events = Events(on_event)
        self.log_name = f"holdfast.{kind}.{values['client.id']}"
        """The name of the logger that gets this client's warnings."""
        self._traffic = Traffic(self.events, ConnectionLog(self.log_name, self.network.now_ms))
        self._rng = rng or random.Random()
        self.backoff = Backoff(values["retry.backoff.ms"], values["retry.backoff.max.ms"], self._rng)
        """How long a client on this connection waits before it sends a failed request again."""
        self.metadata = Metadata(
            max_age_ms=values["metadata.max.age.ms"],
            backoff=self.backoff,
            allow_auto_topic_creation=allow_auto_topic_creation,
            events=self.events,
        )
        self._authenticator = authenticator or _authenticator(values)
        self._request_timeout_ms: int = values["request.timeout.ms"]
        self._link_settings = LinkSettings(
            client_id=values["client.id"],
            request_timeout_ms=values["request.timeout.ms"],
            setup_timeout_ms=values["socket.connection.setup.timeout.ms"],
            backoff_ms=values["reconnect.backoff.ms"],
            backoff_max_ms=values["reconnect.backoff.max.ms"],
            max_idle_ms=values["connections.max.idle.ms"],
            max_response_bytes=values["response.max.bytes"],
            throttle_max_ms=values["throttle.max.ms"],
            uses_tls=values["security.protocol"] in ("SSL", "SASL_SSL"),
        )
        addresses = [split_address(address) for address in values["bootstrap.servers"]]
        self._links = Links(addresses, self._new_link, self.keep, self._rng)
        self._unplaced: list[tuple[Call, int]] = []  # for any broker or the controller, with deadlines
        self._kept: list[Reply] = []  # for the next `poll`
        self._bootstrap_timeout_ms: int = values["bootstrap.timeout.ms"]
        self._raises_unreachable = raises_unreachable
        self._bootstrap_by_ms: int | None = None
        self._turn_ended_ms = 0
        self._renewal: Call | None = None
        self._abandoned: list[Call] = []  # calls of `ask` whose replies nobody waits for
        self._interrupted_thread: int | None = None
        self._is_closed = False

    # The interface ------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, *calls: Call) -> list[Reply]:
        """Send `calls` and return the replies that have arrived, after waiting `timeout_ms` for an event.

        May return early and without a reply: not every event is one. A call that fails has its error in its
        reply. Raises ClosedError, UnreachableError if no broker has answered for `bootstrap.timeout.ms`, and
        AuthenticationError if none lets this client log in.
        """
        if self._is_closed:
            raise ClosedError("the connection is closed")
        if type(timeout_ms) is not int:
            timeout_ms = A_WAIT.check("Connection.poll()", "timeout_ms", timeout_ms)
        for call in calls:
            _A_CALL.check("Connection.poll()", "each call", call)
        now_ms = self.network.now_ms()
        if self._bootstrap_by_ms is not None:
            # While the caller was away, no attempt could fail or succeed: that time does not count.
            self._bootstrap_by_ms += max(0, now_ms - self._turn_ended_ms - _SHORT_ABSENCE_MS)
        unreached = self.unreachable(now_ms)
        if unreached is not None and self._raises_unreachable:
            self._bootstrap_by_ms = None  # The next call starts a new period.
            raise unreached
        replies, self._kept = self._kept, []
        for call in calls:
            replies += self._place(call, now_ms)
        replies += self._tick(now_ms)
        wait_ms = 0 if replies else max(0, min(timeout_ms, self._until_next_event_ms(now_ms, timeout_ms)))
        links = {link.channel: link for link in self._links.all() if link.channel is not None}
        writing: set[Channel] = {channel for channel, link in links.items() if link.wants_write}
        ready = self.network.wait(wait_ms, writing)
        now_ms = self.network.now_ms()
        for channel in ready:
            if channel in links:
                replies += links[channel].on_ready(now_ms)
        replies += self._tick(now_ms)
        replies = self._without_renewal(replies, now_ms)
        self._turn_ended_ms = now_ms
        self.events.tell()
        if self._abandoned:
            replies = [reply for reply in replies if not self._is_abandoned(reply.call)]
        if self._interrupted_thread is not None and self._interrupted_thread == get_ident():
            self._interrupted_thread = None
            self._kept = replies + self._kept
            raise interrupted("a call to a broker")
        return replies

    def _is_abandoned(self, call: Call) -> bool:
        found = next((index for index, each in enumerate(self._abandoned) if each is call), None)
        if found is not None:
            del self._abandoned[found]
        return found is not None

    def ask(self, node: int, request: Request[R], timeout_ms: int | None = None) -> R:
        """Send one request and wait for its response.

        Raises the error that prevented a response (`clients.errors`). Error codes in the response are left to
        the caller. The next `poll` returns replies to other calls that come meanwhile.
        """
        call = Call(node, request, timeout_ms)
        kept: list[Reply] = []
        calls = [call]
        while True:
            try:
                replies = self.poll(self._request_timeout_ms, *calls)
            except InterruptedCall:
                others = [reply for reply in self._kept if reply.call is not call]
                if len(others) == len(self._kept):
                    self._abandoned.append(call)  # Its reply has not come yet.
                self._kept = kept + others
                raise
            calls = []
            mine = next((reply for reply in replies if reply.call is call), None)
            kept += [reply for reply in replies if reply is not mine]
            if mine is not None:
                self._kept = kept + self._kept
                if mine.error is not None:
                    raise mine.error
                return cast("R", mine.response)

    def keep(self, replies: list[Reply]) -> None:
        """Have the next `poll` return `replies`, for a caller that polled for something else."""
        self._kept += replies

    def is_ready(self, node: int) -> bool:
        """Whether a call to this broker would be sent at once."""
        link = self._links.by_node.get(node)
        return link is not None and link.is_ready and not link.is_blocked(self.network.now_ms())

    def conversation(self, node: int) -> Conversation | None:
        """The conversation with this broker in which the next call is sent; None while there is none.

        A new object after every reconnect: state that the broker keeps for a connection is then gone.
        """
        link = self._links.by_node.get(node)
        return None if link is None else link.wire

    def open(self, node: int) -> bool:
        """Connect to this broker without a call. Returns whether the broker is known.

        A caller that waits until the connection is ready need not handle calls that fail for lack of one.
        """
        link = self._links.by_node.get(node)
        if link is None:
            return False
        if link.channel is None:
            self._kept += link.open(self.network.now_ms())
        return True

    def open_line(self, host: str, port: int) -> None:
        """Open a second connection to a broker, for calls to COORDINATOR; replaces the one before.

        Responses come in order: an answer that the broker may hold back for minutes must not delay others.
        """
        self._links.open_apart(host, port, self.network.now_ms())

    def is_connected(self) -> bool:
        """Whether a connection to any broker is established. May be called by any thread."""
        return any(link.is_ready for link in self._links.all())

    def pending(self, node: int) -> int:
        """Calls to this broker that have no reply yet."""
        link = self._links.by_node.get(node)
        return 0 if link is None else link.pending

    def features(self) -> dict[str, int]:
        """The features that the connected brokers announce, with their versions."""
        found: dict[str, int] = {}
        for link in self._links.all():
            if link.wire is not None:
                found.update(link.wire.features)
        return found

    def api_versions(self, node: int) -> dict[int, tuple[int, int]] | None:
        """The versions that this broker speaks, by API key; None while there is no connection to it."""
        link = self._links.by_node.get(node)
        return None if link is None or link.wire is None else dict(link.wire.versions)

    def feedback(self) -> ConnectionFeedback:
        """The counts so far. May be called by any thread."""
        from holdfast_log.clients.feedback.snapshots import (
            connection_feedback,  # Slow to import, seldom used.
        )

        return connection_feedback(self._traffic)

    def wake(self) -> None:
        """Make a `poll` under way return. May be called by any thread."""
        self.network.wake()

    def interrupt(self, thread: int) -> None:
        """Have the `poll` under way in the thread with this identifier, or its next one, raise
        InterruptedCall. No reply is lost. May be called by any thread."""
        self._interrupted_thread = thread
        self.network.wake()

    def forget_interruption(self) -> None:
        """Undo an `interrupt` that no `poll` has met."""
        self._interrupted_thread = None

    def close(self) -> None:
        """Close all connections. Calls under way get no reply."""
        if not self._is_closed:
            self._is_closed = True
            now_ms = self.network.now_ms()
            for link in self._links.all():
                link.close(ClosedError("the connection is closed"), now_ms)
            self.network.close()
            self.events.tell()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # A turn of the loop -------------------------------------------------------------------------------

    def unreachable(self, now_ms: int) -> UnreachableError | AuthenticationError | None:
        """The error of a client that no broker has ever answered, once that has lasted for
        `bootstrap.timeout.ms`, or that could not authenticate; None before, and after the first answer."""
        if self.metadata.update_count:
            self._bootstrap_by_ms = None
        elif (denied := self._links.denied()) is not None:
            return denied
        elif self._bootstrap_by_ms is None:
            self._bootstrap_by_ms = now_ms + self._bootstrap_timeout_ms
        elif now_ms >= self._bootstrap_by_ms:
            return UnreachableError(
                f"{self._no_answer(ANY_NODE)} (bootstrap.timeout.ms={self._bootstrap_timeout_ms})"
            )
        return None

    def _tick(self, now_ms: int) -> list[Reply]:
        self._renew_metadata(now_ms)
        replies = self._place_waiting(now_ms)
        for link in self._links.all():
            replies += link.tick(now_ms)
        return replies

    def _until_next_event_ms(self, now_ms: int, timeout_ms: int) -> int:
        times = [link.next_event_ms(now_ms) for link in self._links.all()]
        times += [deadline_ms for _, deadline_ms in self._unplaced]
        if self._bootstrap_by_ms is not None and self._bootstrap_by_ms > now_ms:
            times.append(self._bootstrap_by_ms)
        if self._renewal is None:
            times.append(self.metadata.due_at_ms())
        return min((time - now_ms for time in times if time is not None), default=timeout_ms)

    def _place(self, call: Call, now_ms: int) -> list[Reply]:
        link = self._links.apart if call.node == COORDINATOR else self._links.by_node.get(call.node)
        if link is not None:
            link.submit(call, now_ms)
            return []
        if call.node not in (ANY_NODE, CONTROLLER):
            self.metadata.renew()
            error = NoBrokerError(f"the cluster's metadata has no broker {call.node}")
            return [Reply(call, error=error, was_sent=False)]
        timeout_ms = self._request_timeout_ms if call.timeout_ms is None else call.timeout_ms
        self._unplaced.append((call, now_ms + timeout_ms))
        return []

    def _place_waiting(self, now_ms: int) -> list[Reply]:
        """Submit the calls to any broker and to the controller whose broker is known by now."""
        replies = []
        waiting, self._unplaced = self._unplaced, []
        for call, deadline_ms in waiting:
            link = self._link_for(call.node, now_ms)
            if link is not None:
                call.timeout_ms = deadline_ms - now_ms
                link.submit(call, now_ms)
            elif now_ms < deadline_ms:
                self._unplaced.append((call, deadline_ms))
            else:
                replies.append(Reply(call, error=self._no_answer(call.node), was_sent=False))
        return replies

    def _link_for(self, node: int, now_ms: int) -> Link | None:
        if node != CONTROLLER:
            return self._links.any_ready(now_ms, self.metadata.doubted)
        link = self._links.by_node.get(self.metadata.controller_id) if self.metadata.update_count else None
        if link is None:
            self.metadata.renew()
        return link

    def standing(self, node: int) -> str:
        """What a call to this broker, or to any, waits for, in words; empty if for nothing that is known.

        For the error of a call whose time has run out. May be called by any thread.
        """
        now_ms = self.network.now_ms()
        if node == ANY_NODE:
            links = self._links.shared()
            if any(link.is_ready for link in links) and self.metadata.update_count:
                return ""
            return "; ".join(self._links.standings(now_ms)) or "no broker has answered yet"
        link = self._links.apart if node == COORDINATOR else self._links.by_node.get(node)
        return "" if link is None else link.standing(now_ms)

    def troubles(self) -> list[str]:
        """For each broker without a connection, why the last one failed or broke."""
        return self._links.troubles()

    def _no_answer(self, node: int) -> Exception:
        links = self._links.shared()
        errors = self.troubles()
        if not errors:
            return NoBrokerError(f"no broker answers: {', '.join(str(link) for link in links)}")
        if any(link.is_ready for link in links):
            whom = "the controller is not known" if node == CONTROLLER else "all brokers are busy"
            return RequestTimeoutError(f"{whom}; {'; '.join(errors)}")
        return NoBrokerError(f"no broker answers: {'; '.join(errors)}")

    # Metadata -----------------------------------------------------------------------------------------

    def _renew_metadata(self, now_ms: int) -> None:
        if self._renewal is None and self.metadata.due_at_ms() <= now_ms:
            self._renewal = Call(ANY_NODE, self.metadata.request(now_ms))
            self._place(self._renewal, now_ms)

    def _without_renewal(self, replies: list[Reply], now_ms: int) -> list[Reply]:
        for reply in replies:
            if reply.call is self._renewal:
                self._renewal = None
                if isinstance(reply.response, MetadataResponse):
                    assert isinstance(reply.call.request, MetadataRequest)
                    self.metadata.update(reply.response, reply.call.request, now_ms)
                    self._links.follow(self.metadata.nodes, now_ms)
                else:
                    self.metadata.renew()
                return [other for other in replies if other is not reply]
        return replies

    def _new_link(self, host: str, port: int) -> Link:
        return Link(
            host,
            port,
            self.network,
            self._link_settings,
            self._rng,
            self._traffic.meter(f"{host}:{port}"),
            self._authenticator,
            on_failure=self.metadata.renew,
        )


def _tls_channels(settings: Mapping[str, Any]) -> Callable[..., SocketChannel] | None:
    if settings["security.protocol"] not in ("SSL", "SASL_SSL"):
        return None
    from holdfast_log.clients.connection.tls import tls_channels  # Slow to import, and most do without.

    return tls_channels(settings)


def _authenticator(settings: Mapping[str, Any]) -> Authenticator | None:
    if not settings["security.protocol"].startswith("SASL_"):
        return None
    from holdfast_log.clients.connection.sasl import sasl_authenticator  # Most do without.

    return sasl_authenticator(settings)


def _checked(bootstrap: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    if "response.max.bytes" in settings:
        return {**settings, "bootstrap.servers": settings["bootstrap.servers"]}
    properties: Properties = {**settings, "bootstrap.servers": bootstrap}
    return load_settings(ADMIN_ROWS, properties, "a connection")
