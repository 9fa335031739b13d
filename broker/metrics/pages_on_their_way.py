"""Sends pages as fast as their clients read them, and gives up those that nobody reads.

A page of thousands of partitions has megabytes. It is given to the socket in pieces, so a client that does
not read holds the page and one piece. All pages together are bounded; beyond that the one that has waited
longest is given up, so that a supervisor gets its page however many strangers do not read theirs.
"""

from __future__ import annotations

from typing import Any

from holdfast_log.coordinator.clock import Clock, DelayedCall

PIECE_BYTES = 64 * 1024
BYTES_MAX = 64 << 20
"""Maximum bytes of all pages that are on their way. One page may be larger."""
SENT_WITHIN_S = 60.0
"""A client that has not read its page after this time is given up."""


class PagesOnTheirWay:
    """The pages of one server that have not been read to their end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[_Page, None] = {}
        self._bytes = 0

    def send(self, request: Any, page: bytes) -> None:
        """Answer the request with the page, and finish it."""
        self._bytes += len(page)
        while self._sent and self._bytes > BYTES_MAX:
            next(iter(self._sent)).give_up()
        sent = _Page(self, request, page)
        self._sent[sent] = None
        sent.begin(self._clock)

    def ended(self, page: _Page) -> None:
        """The page has been sent, or given up."""
        del self._sent[page]
        self._bytes -= len(page.content)


class _Page:
    """One page on its way to one client: what Twisted calls a push producer."""

    def __init__(self, to: PagesOnTheirWay, request: Any, content: bytes) -> None:
        self.content = content
        self._to = to
        self._request = request
        self._at = 0
        self._is_paused = False
        self._is_ended = False
        self._late: DelayedCall | None = None

    def begin(self, clock: Clock) -> None:
        self._late = clock.callLater(SENT_WITHIN_S, self.give_up)
        self._request.registerProducer(self, True)
        self.resumeProducing()

    def resumeProducing(self) -> None:
        self._is_paused = False
        while not self._is_paused and not self._is_ended:
            piece = self.content[self._at : self._at + PIECE_BYTES]
            self._at += len(piece)
            self._request.write(piece)
            if self._at >= len(self.content):
                self._request.unregisterProducer()
                self._end()
                self._request.finish()

    def pauseProducing(self) -> None:
        self._is_paused = True

    def stopProducing(self) -> None:
        """The client has left."""
        self._end()

    def give_up(self) -> None:
        """Close the connection, although the page has not been read."""
        self._end()
        self._request.transport.abortConnection()

    def _end(self) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._to.ended(self)
