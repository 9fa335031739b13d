"""Serves /metrics, /healthz and /readyz over HTTP, on the reactor: if /healthz answers, the reactor turns.

Nobody is asked who they are. So a client can do little: it may read three pages, hold a few connections, and
send no body. Who holds all connections keeps nobody else out, and pages that nobody reads take bounded memory
(`pages_on_their_way`).
"""

from __future__ import annotations

import errno
import io
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.protocols.policies import WrappingFactory
from twisted.python.failure import Failure
from twisted.web.http import INTERNAL_SERVER_ERROR, NOT_ALLOWED, NOT_FOUND, OK, SERVICE_UNAVAILABLE
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from holdfast_log.broker.metrics.pages_on_their_way import PagesOnTheirWay
from holdfast_log.broker.metrics.settings import HttpAddress

_log = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
"""Maximum number of open connections. A further one takes the place of another."""
_IDLE_S = 30
_PLAIN = "text/plain; charset=utf-8"
_PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_INDEX = (
    "/metrics  what this broker counts, for Prometheus\n"
    "/healthz  200 if the broker's event loop turns\n"
    "/readyz   200 if the broker serves clients; else 503, and why\n"
)


class MonitoringServer:
    """An HTTP server with the three pages.

    `make_page` makes /metrics. `unready` returns why the broker does not serve clients, one sentence each;
    none if it does.
    """

    def __init__(
        self,
        reactor: Any,
        make_page: Callable[[], Deferred[bytes]],
        unready: Callable[[], Sequence[str]],
    ) -> None:
        root: Any = cast(Any, _Page)()
        root.putChild(b"", _TextPage(lambda: (True, _INDEX)))
        root.putChild(b"metrics", _MadePage(make_page, PagesOnTheirWay(reactor)))
        root.putChild(b"healthz", _TextPage(lambda: (True, "ok\n")))
        root.putChild(b"readyz", _TextPage(lambda: _readiness(unready())))
        site = cast(Any, _SilentSite)(root, requestFactory=_BodilessRequest, timeout=_IDLE_S)
        site.displayTracebacks = False
        self._reactor = reactor
        self._factory = cast(Any, _FewConnections)(site)
        self._factory.noisy = False
        self._port: Any = None

    def listen(self, address: HttpAddress) -> HttpAddress:
        """Open the port. Returns the address with the real port number. Raises OSError, whose text says what
        to do."""
        try:
            self._port = self._reactor.listenTCP(address.port, self._factory, interface=address.host)
        except CannotListenError as error:
            raise OSError(f"metrics.http.listener={address} cannot be opened: {_reason(error)}") from error
        return HttpAddress(address.host, self._port.getHost().port)

    def stop(self) -> None:
        """Close the port and every connection."""
        port, self._port = self._port, None
        if port is not None:
            port.stopListening()
        for protocol in list(self._factory.protocols):
            protocol.transport.abortConnection()


def _reason(error: CannotListenError) -> str:
    number = getattr(error.socketError, "errno", None)
    if number == errno.EADDRINUSE:
        return "another program uses the port: stop that program, or set another port"
    return os.strerror(number) if number else str(error.socketError)


def _readiness(reasons: Sequence[str]) -> tuple[bool, str]:
    return not reasons, "".join(f"{reason}\n" for reason in reasons) or "ready\n"


class _FewConnections(WrappingFactory):
    """Keeps `CONNECTIONS_MAX` connections. A further one takes the place of the oldest of the address that
    has the most. So strangers who hold connections do not keep a supervisor at another address out."""

    def buildProtocol(self, address: Any) -> Any:
        if len(self.protocols) >= CONNECTIONS_MAX:
            # In the order in which they came: Twisted registers them in a dictionary.
            of_host: dict[str, list[Any]] = {}
            for each in self.protocols:
                of_host.setdefault(each.transport.getPeer().host, []).append(each)
            given_up = max(of_host.values(), key=len)[0]
            given_up.transport.abortConnection()
            # It is lost in the next turn; until then others may come, each of which takes another's place.
            del self.protocols[given_up]
        return super().buildProtocol(address)

    def unregisterProtocol(self, protocol: Any) -> None:
        self.protocols.pop(protocol, None)


class _SilentSite(Site):
    """Logs no request: a supervisor asks every few seconds."""

    noisy = False

    def log(self, request: Any) -> None:
        pass


class _BodilessRequest(Request):
    """Drops the body that a client sends, instead of storing it in memory or in a file."""

    def gotLength(self, length: int | None) -> None:
        self.content = io.BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        pass


class _Page(Resource):
    """A page that can only be read. What it has no child for does not exist."""

    def render(self, request: Any) -> bytes | int:
        if request.method not in (b"GET", b"HEAD"):
            request.setHeader("allow", "GET, HEAD")
            return _short(request, NOT_ALLOWED, "This page can only be read (GET).\n")
        return self.render_GET(request)

    def render_GET(self, request: Any) -> bytes | int:
        return _short(request, NOT_FOUND, "There is no such page here; / lists those that there are.\n")

    def getChild(self, name: bytes, request: Any) -> Any:
        return self


def _short(request: Any, status: int, text: str) -> bytes:
    """Set what goes with a short text; the text is returned, encoded."""
    request.setResponseCode(status)
    request.setHeader("content-type", _PLAIN)
    return text.encode()


class _TextPage(_Page):
    """A page that is made at once. `make` returns whether all is well, and the text."""

    isLeaf = True

    def __init__(self, make: Callable[[], tuple[bool, str]]) -> None:
        cast(Any, super()).__init__()
        self._make = make

    def render_GET(self, request: Any) -> bytes:
        is_well, text = self._make()
        return _short(request, OK if is_well else SERVICE_UNAVAILABLE, text)


class _MadePage(_Page):
    """A page that is made later."""

    isLeaf = True

    def __init__(self, make: Callable[[], Deferred[bytes]], on_their_way: PagesOnTheirWay) -> None:
        cast(Any, super()).__init__()
        self._make = make
        self._on_their_way = on_their_way

    def render_GET(self, request: Any) -> int:
        is_gone = False

        def gone(_: Failure) -> None:
            nonlocal is_gone
            is_gone = True

        def made(page: bytes) -> None:
            if not is_gone:
                request.setHeader("content-type", _PROMETHEUS_TEXT)
                request.setHeader("content-length", str(len(page)))
                self._on_their_way.send(request, page)

        def failed(failure: Failure) -> None:
            _log.error("The page /metrics cannot be made", exc_info=failure.value)
            if not is_gone:
                text = "The page cannot be made; the broker's log says why.\n"
                request.write(_short(request, INTERNAL_SERVER_ERROR, text))
                request.finish()

        request.notifyFinish().addErrback(gone)
        self._make().addCallbacks(made, failed)
        return int(NOT_DONE_YET)
