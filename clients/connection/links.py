"""A client's links: to the known brokers, the bootstrap servers, and a second one to a coordinator."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

from holdfast_log.clients.connection.cluster_view import NO_NODE, Node
from holdfast_log.clients.connection.link import Link, Reply
from holdfast_log.clients.errors import ConnectionFailedError
from holdfast_log.protocol.errors import AuthenticationError


class Links:
    """All links of a client. `make` makes a link; `keep` takes the replies of opening or closing one."""

    def __init__(
        self,
        bootstrap: Iterable[tuple[str, int]],
        make: Callable[[str, int], Link],
        keep: Callable[[list[Reply]], None],
        rng: random.Random,
    ) -> None:
        self.by_node: dict[int, Link] = {}
        self.apart: Link | None = None
        """The link for calls whose answers may take long and must not delay others from the same broker."""
        self._make = make
        self._keep = keep
        self._rng = rng
        self._bootstrap = [make(host, port) for host, port in bootstrap]

    def all(self) -> list[Link]:
        """Every link."""
        return [*self.shared(), *(() if self.apart is None else (self.apart,))]

    def shared(self) -> list[Link]:
        """The links on which any call may be sent."""
        return [*self.by_node.values(), *self._bootstrap]

    def open_apart(self, host: str, port: int, now_ms: int) -> None:
        """Point the second link at this address."""
        if self.apart is not None:
            if (self.apart.host, self.apart.port) == (host, port):
                return
            error = ConnectionFailedError(f"the coordinator has moved from {self.apart} to {host}:{port}")
            self._keep(self.apart.close(error, now_ms))
        self.apart = self._make(host, port)

    def any_ready(self, now_ms: int, avoided: int = NO_NODE) -> Link | None:
        """The ready link with the fewest pending calls. If none is ready, opens one and returns None.

        The broker `avoided` is used only while no other can be reached.
        """
        links = self.shared()
        others = self._others(avoided)
        if any(not link.is_blocked(now_ms) for link in others):
            links = others
        ready = [link for link in links if link.is_ready and not link.is_blocked(now_ms)]
        if ready:
            return min(ready, key=lambda link: link.pending)
        if all(link.channel is None for link in links):
            closed = [link for link in links if not link.is_blocked(now_ms)]
            if closed:
                # Bootstrap servers are candidates too: they help when all known brokers are gone.
                fewest = min(link.failures for link in closed)
                chosen = self._rng.choice([link for link in closed if link.failures == fewest])
                self._keep(chosen.open(now_ms))
        return None

    def _others(self, avoided: int) -> list[Link]:
        """The links to known brokers other than this one: bootstrap servers may be the same broker."""
        if avoided not in self.by_node:
            return []
        return [link for node, link in self.by_node.items() if node != avoided]

    def follow(self, nodes: Mapping[int, Node], now_ms: int) -> None:
        """Have one link for each broker in `nodes`, and none for brokers that are gone or have moved."""
        for id_, link in list(self.by_node.items()):
            node = nodes.get(id_)
            if node is None or (node.host, node.port) != (link.host, link.port):
                error = ConnectionFailedError(f"{link} is no longer broker {id_}")
                self._keep(link.close(error, now_ms))
                del self.by_node[id_]
        for node in nodes.values():
            if node.id not in self.by_node:
                self.by_node[node.id] = self._link_to(node)
                self.by_node[node.id].meter.tally.node = node.id
        for link in self._bootstrap:
            if not link.pending:
                link.hang_up()

    def _link_to(self, node: Node) -> Link:
        """A link for a broker: the bootstrap link if it has the same address, else a new one."""
        for index, link in enumerate(self._bootstrap):
            if link.is_ready and (link.host, link.port) == (node.host, node.port):
                self._bootstrap[index] = self._make(link.host, link.port)
                return link
        return self._make(node.host, node.port)

    def denied(self) -> AuthenticationError | None:
        """The error of a client whom every broker that was asked refuses to know."""
        errors = [link.last_error for link in self.shared() if link.last_error is not None]
        refusals = [error for error in errors if isinstance(error, AuthenticationError)]
        return refusals[0] if refusals and len(refusals) == len(errors) else None

    def troubles(self) -> list[str]:
        """For each link without a connection, why the last one failed or broke."""
        return [str(link.last_error) for link in self.shared() if link.last_error is not None]

    def standings(self, now_ms: int) -> list[str]:
        """For each link, what a call on it waits for; without those that wait for nothing known."""
        return [standing for link in self.shared() if (standing := link.standing(now_ms))]
