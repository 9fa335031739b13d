"""Closes connections of browsers that do not get on, so that nobody holds the console's places for ever.

uvicorn waits for ever for a request whose head does not end, for the first request of a connection, and for a
client that does not read its answer. Its limit of connections would then keep everybody else out.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LOOK_S = 10.0
"""A connection is closed if from one look to the next it has neither ended the head or the form of a request
nor read anything of its answer."""

HEAD_BYTES_MAX = 16 * 1024
"""Maximum bytes of a request before its form."""


class ImpatientProtocol(H11Protocol):
    """uvicorn's protocol by h11, which also bounds the head of a request."""

    _look: asyncio.TimerHandle | None = None
    _seen: object = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _look_again(self) -> None:
        self._seen = self._stuck_at()
        self._look = self.loop.call_later(LOOK_S, self._look_now)

    def _look_now(self) -> None:
        stuck_at = self._stuck_at()
        if stuck_at is not None and stuck_at == self._seen:
            self.transport.abort()
        else:
            self._look_again()

    def _stuck_at(self) -> object:
        """What the connection waits for from its client; None if it waits for the console."""
        unread = self.transport.get_write_buffer_size()
        is_asked = self.cycle is not None and not self.cycle.response_complete
        if unread or not is_asked or self.conn.their_state is h11.SEND_BODY:
            return (id(self.cycle), unread)
        return None
