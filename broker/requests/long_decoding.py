"""Requests with very many elements: decoded a little at a time, between the requests of others.

A request of 200 KB may have 20,000 elements, which take 20 ms to decode. Everybody else would wait for so
long, so such a request takes its turns in the rotation of the broker's connections. Later requests of its
connection wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.network.rotation import SLICE_S
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.schema import MalformedMessage


class LongDecoding:
    """One request that is being decoded. `decoded` is called with it, and with the seconds that decoding has
    taken, in the last slice; `refused` is called if it is no valid request; neither if the connection has
    closed before."""

    def __init__(
        self,
        connection: ServerConnection,
        steps: Generator[None, None, Request[Any]],
        clock_s: Callable[[], float],
        decoded: Callable[[Request[Any], float], None],
        refused: Callable[[MalformedMessage], None],
    ) -> None:
        self._connection = connection
        self._steps = steps
        self._clock_s = clock_s
        self._decoded = decoded
        self._refused = refused
        self._spent_s = 0.0

    def begin(self) -> None:
        """Decode for as long as a slice. What is left takes its turns."""
        if self.take_slice(self._clock_s() + SLICE_S):
            self._connection.take_turns(self)

    def take_slice(self, ends_s: float) -> bool:
        """Decode until `ends_s`. Returns whether there is more to decode."""
        if self._connection.is_closed:
            return False
        began_s = self._clock_s()
        try:
            while True:
                next(self._steps)
                now_s = self._clock_s()
                if now_s >= ends_s:
                    self._spent_s += now_s - began_s
                    return True
        except StopIteration as end:
            self._decoded(end.value, self._spent_s + self._clock_s() - began_s)
        except MalformedMessage as error:
            self._refused(error)
        return False
