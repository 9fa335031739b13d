"""The low-level way to a cluster: requests to brokers by their ids, many under way at once, one event loop.

    connection = Connection("localhost:9092")
    for reply in connection.poll(1000, Call(ANY_NODE, MetadataRequest(topics=None))):
        ...

As in the client rewrite, "Low-level RPC API": every `poll` is one turn of a select loop; it sends the
calls it is given and returns what has come back, which need not belong to those calls. `ask` is the blocking
form. Producer, consumer and admin all stand on this.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from clients.config import ADMIN_ROWS, Properties, load_settings, split_address
from clients.connection.conversation import Authenticator, Conversation
from clients.connection.link import Call, Link, LinkSettings, Reply
from clients.connection.links import Links
from clients.connection.metadata import Metadata
from clients.connection.network import Channel, ClientNetwork, SocketChannel, SystemNetwork
from clients.errors import (
    ClosedError,
    NoBrokerError,
    RequestTimeoutError,
    UnreachableError,
)
from clients.feedback.events import Events, OnEvent
from clients.feedback.traffic import Traffic
from protocol.api import Request, Response
from protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from clients.feedback.snapshots import ConnectionFeedback

ANY_NODE = -1
"""Send to whichever broker answers soonest."""
CONTROLLER = -2
"""Send to the cluster's controller."""
COORDINATOR = -3
"""Send to the broker to which `Connection.open_line` has opened a line of its own."""

R = TypeVar("R", bound=Response)


class Connection:
    """Connections to all brokers of a cluster that are talked to. Belongs to one thread, save for `wake`.

    `settings` are connection properties besides the bootstrap servers (or checked settings that a client
    already has). `network`, `rng` and `authenticator` are for simulations and for SASL. `on_event` is
    called with what happens (`clients.feedback.events`), towards the end of `poll`.
    """

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
    ) -> None:
        checked = _checked(bootstrap, settings or {})
        self.network: ClientNetwork = network or SystemNetwork(
            secure=_tls_channels(checked),
            send_buffer_bytes=checked["send.buffer.bytes"],
            receive_buffer_bytes=checked["receive.buffer.bytes"],
        )
        self.events = Events(on_event)
        self._traffic = Traffic(self.events)
        self.metadata = Metadata(
            max_age_ms=checked["metadata.max.age.ms"],
            retry_backoff_ms=checked["retry.backoff.ms"],
            allow_auto_topic_creation=allow_auto_topic_creation,
            events=self.events,
        )
        self._rng = rng or random.Random()
        self._authenticator = authenticator
        self._request_timeout_ms: int = checked["request.timeout.ms"]
        self._link_settings = LinkSettings(
            client_id=checked["client.id"],
            request_timeout_ms=checked["request.timeout.ms"],
            setup_timeout_ms=checked["socket.connection.setup.timeout.ms"],
            backoff_ms=checked["reconnect.backoff.ms"],
            backoff_max_ms=checked["reconnect.backoff.max.ms"],
            max_idle_ms=checked["connections.max.idle.ms"],
            max_response_bytes=checked["response.max.bytes"],
        )
        addresses = [split_address(address) for address in checked["bootstrap.servers"]]
        self._links = Links(addresses, self._new_link, self.keep, self._rng)
        self._unplaced: list[tuple[Call, int]] = []  # for any broker or the controller; with their deadlines
        self._kept: list[Reply] = []  # for the next `poll`
        self._bootstrap_timeout_ms: int | None = checked.get("bootstrap.timeout.ms")
        self._bootstrap_by_ms: int | None = None
        self._renewal: Call | None = None
        self._is_closed = False

    # The interface ------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, *calls: Call) -> list[Reply]:
        """Send `calls`; the replies that are there, after waiting at most `timeout_ms` for a first event.

        May return early, and with nothing: an event need not be a reply. A call never raises here; what
        keeps it from its response is the reply's `error`. Raises ClosedError, and UnreachableError where no
        broker has answered for `bootstrap.timeout.ms`.
        """
        if self._is_closed:
            raise ClosedError("the connection is closed")
        now_ms = self.network.now_ms()
        self._check_reached(now_ms)
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
        self.events.tell()
        return replies

    def ask(self, node: int, request: Request[R], timeout_ms: int | None = None) -> R:
        """Send one request and wait for its response.

        Raises the error that kept it from one (`clients.errors`). Error codes in the response are the
        caller's to look at. Replies to other calls that come meanwhile are returned by the next `poll`.
        """
        call = Call(node, request, timeout_ms)
        kept: list[Reply] = []
        calls = [call]
        while True:
            replies = self.poll(self._request_timeout_ms, *calls)
            calls = []
            mine = next((reply for reply in replies if reply.call is call), None)
            kept += [reply for reply in replies if reply is not mine]
            if mine is not None:
                self._kept = kept + self._kept
                if mine.error is not None:
                    raise mine.error
                return cast("R", mine.response)

    def keep(self, replies: list[Reply]) -> None:
        """Have `replies` be returned by the next `poll`: for those who polled for something else."""
        self._kept += replies

    def is_ready(self, node: int) -> bool:
        """Whether a call to this broker would go out at once."""
        link = self._links.by_node.get(node)
        return link is not None and link.is_ready and not link.is_blocked(self.network.now_ms())

    def conversation(self, node: int) -> Conversation | None:
        """The conversation with this broker on which the next call goes out; None while there is none.

        Another object after every reconnect: what a broker ties to a connection is then to be said again.
        """
        link = self._links.by_node.get(node)
        return None if link is None else link.wire

    def open(self, node: int) -> bool:
        """Have the connection to this broker come about, without a call; whether the broker is known.

        Calls that fail because it did not are spared: what cannot be sent stays with the caller.
        """
        link = self._links.by_node.get(node)
        if link is None:
            return False
        if link.channel is None:
            self._kept += link.open(self.network.now_ms())
        return True

    def open_line(self, host: str, port: int) -> None:
        """Have a second connection to a broker, for calls to COORDINATOR, in place of the one there was.

        Answers come in order: what may wait for minutes must not stand before everything else.
        """
        self._links.open_apart(host, port, self.network.now_ms())

    def pending(self, node: int) -> int:
        """Calls to this broker that have no reply yet."""
        link = self._links.by_node.get(node)
        return 0 if link is None else link.pending

    def features(self) -> dict[str, int]:
        """The features that the brokers talked to announce, with their versions."""
        found: dict[str, int] = {}
        for link in self._links.all():
            if link.wire is not None:
                found.update(link.wire.features)
        return found

    def api_versions(self, node: int) -> dict[int, tuple[int, int]] | None:
        """What this broker speaks, by API key; None where there is no connection to it yet."""
        link = self._links.by_node.get(node)
        return None if link is None or link.wire is None else dict(link.wire.versions)

    def feedback(self) -> ConnectionFeedback:
        """What has been counted so far. May be called by any thread."""
        from clients.feedback.snapshots import connection_feedback  # Slow to import, and many do without.

        return connection_feedback(self._traffic)

    def wake(self) -> None:
        """Make a `poll` under way return. May be called by any thread."""
        self.network.wake()

    def close(self) -> None:
        """Close all connections. Calls under way are forgotten."""
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

    def _check_reached(self, now_ms: int) -> None:
        """Raises UnreachableError where nobody has answered for too long."""
        if self.metadata.update_count or self._bootstrap_timeout_ms is None:
            self._bootstrap_by_ms = None
        elif self._bootstrap_by_ms is None:
            self._bootstrap_by_ms = now_ms + self._bootstrap_timeout_ms
        elif now_ms >= self._bootstrap_by_ms:
            self._bootstrap_by_ms = None  # The next attempt has the full time again.
            raise UnreachableError(
                f"{self._nobody_answers(ANY_NODE)} (bootstrap.timeout.ms={self._bootstrap_timeout_ms})"
            )

    def _tick(self, now_ms: int) -> list[Reply]:
        self._renew_metadata(now_ms)
        replies = self._place_waiting(now_ms)
        for link in self._links.all():
            replies += link.tick(now_ms)
        return replies

    def _until_next_event_ms(self, now_ms: int, timeout_ms: int) -> int:
        times = [link.next_event_ms(now_ms) for link in self._links.all()]
        times += [deadline_ms for _, deadline_ms in self._unplaced]
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
            error = NoBrokerError(f"no broker is known by the id {call.node}")
            return [Reply(call, error=error, was_sent=False)]
        timeout_ms = self._request_timeout_ms if call.timeout_ms is None else call.timeout_ms
        self._unplaced.append((call, now_ms + timeout_ms))
        return []

    def _place_waiting(self, now_ms: int) -> list[Reply]:
        """Find a broker for the calls to any, and the controller for those to it."""
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
                replies.append(Reply(call, error=self._nobody_answers(call.node), was_sent=False))
        return replies

    def _link_for(self, node: int, now_ms: int) -> Link | None:
        if node != CONTROLLER:
            return self._links.any_ready(now_ms)
        link = self._links.by_node.get(self.metadata.controller_id) if self.metadata.update_count else None
        if link is None:
            self.metadata.renew()
        return link

    def troubles(self) -> list[str]:
        """Why connections to brokers did not come about, or broke, where they do not stand again."""
        return self._links.troubles()

    def _nobody_answers(self, node: int) -> Exception:
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
    if settings["security.protocol"] != "SSL":
        return None
    from clients.connection.tls import tls_channels  # Slow to import, and most do without.

    return tls_channels(settings)


def _checked(bootstrap: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    if "response.max.bytes" in settings:
        return {**settings, "bootstrap.servers": settings["bootstrap.servers"]}
    properties: Properties = {**settings, "bootstrap.servers": bootstrap}
    return load_settings(ADMIN_ROWS, properties, "a connection")
