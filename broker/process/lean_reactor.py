"""Makes Twisted's reactor call the broker's own sockets without what Twisted does for each event.

For every event Twisted copies the logging context, so that whatever the call logs names its connection,
and enters the new one: that costs more than receiving a small request. The broker's log lines name their
connection themselves, so its sockets need the context only for an exception that escapes from them.

Between two looks at the events Twisted also looks for timed calls and calls from threads, at the cost of
another small request. That is done only if there are any.

A look takes `EVENTS_MAX` events at most, so that timed calls and what can wait have their turns however many
sockets are ready. The connections of peers that have gone are not ended in it, but in turns of their own.
"""

from __future__ import annotations

import functools
import select
import sys
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python import log

from holdfast_log.broker.metrics.turn_times import TurnTimes
from holdfast_log.broker.network.lost_connections import LostConnections
from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.broker.network.tls.wire import TlsClient, TlsServer
from holdfast_log.broker.network.transport import FrameClient, FrameServer
from holdfast_log.broker.network.turns import SendingTurn


def make_lean(reactor: Any, turns: TurnTimes, sending: SendingTurn, rotation: Rotation) -> None:
    """Have `reactor` read from the sockets of connections, with TLS or without, and write to them, without a
    logging context, `turns` count its turns, and what connections of `sending` answer be sent together if
    several are read in one turn. Connections whose peers have gone are ended in `rotation`. No effect on
    reactors that do not use epoll."""
    if isinstance(reactor, EPollReactor):
        _LeanPoll(reactor, turns, sending, LostConnections(rotation, reactor.seconds)).install()


EVENTS_MAX = 256
"""Maximum number of sockets that one look finds ready. The system gives the others first at the next look."""

_LONGEST_S = 1_000_000
"""So long waits are left to the reactor, which knows what epoll takes."""
_READABLE, _WRITABLE = select.EPOLLIN, select.EPOLLOUT
_USUAL = frozenset((_READABLE, _WRITABLE, _READABLE | _WRITABLE))
_OURS = frozenset((FrameServer, FrameClient, TlsServer, TlsClient))


class _LeanPoll:
    """What `EPollReactor.doPoll` does, with a short way for our own sockets that are readable or writable."""

    def __init__(self, reactor: Any, turns: TurnTimes, sending: SendingTurn, lost: LostConnections) -> None:
        self._reactor = reactor
        self._sending = sending
        self._lost = lost
        self._turns = turns
        self._clock_s = turns.clock_s
        self._woke_s = self._clock_s()

    def install(self) -> None:
        """Put `poll` in the place of the reactor's own."""
        self._reactor.doPoll = self._reactor.doIteration = self.poll

    def poll(self, timeout: float | None) -> None:
        """Wait for events for `timeout` seconds at most, None: without end. Handle them, and those that come
        before there is something else to do: a timed call, a call from a thread, the end."""
        reactor = self._reactor
        selectables = reactor._selectables
        turns, sending = self._turns, self._sending
        while True:
            turn_s = self._clock_s() - self._woke_s
            turns.count += 1
            turns.busy_s += turn_s
            if turn_s > turns.noted_s:
                turns.note(turn_s)
            try:
                events = reactor._poller.poll(-1 if timeout is None else timeout, EVENTS_MAX)
            except InterruptedError:
                return
            finally:
                self._woke_s = self._clock_s()
            is_several = len(events) > 1
            if is_several:
                sending.begin()
            for fd, event in events:
                selectable = selectables.get(fd)
                if type(selectable) in _OURS:
                    is_read, why = False, None
                    try:
                        if event in _USUAL:
                            if event != _WRITABLE:
                                is_read, why = True, selectable.doRead()
                            if why is None and event != _READABLE:
                                is_read, why = False, selectable.doWrite()
                        else:
                            is_read, why = self._unusual(selectable, fd, event)
                    except BaseException:
                        why = sys.exc_info()[1]
                        log.callWithLogger(selectable, log.err)
                    if why is not None:
                        self._end_later(selectable, why, is_read)
                elif selectable is not None:
                    log.callWithLogger(selectable, reactor._doReadOrWrite, selectable, fd, event)
            if is_several:
                sending.end()
            if not events or reactor.threadCallQueue or reactor._newTimedCalls or reactor._justStopped:
                return
            timed = reactor._pendingTimedCalls
            if not timed or not reactor.running:
                return
            timeout = timed[0].time - reactor.seconds()
            if not 0 < timeout < _LONGEST_S:
                return

    def _unusual(self, selectable: Any, fd: int, event: int) -> tuple[bool, Any]:
        """Handle an event of a socket that has failed, or whose peer has closed it altogether, as Twisted
        does. Returns whether reading has ended the connection, and the reason; None if it goes on."""
        if not event & _READABLE:
            is_read = fd in self._reactor._reads
            return is_read, CONNECTION_DONE if is_read else CONNECTION_LOST
        why = selectable.doRead()
        if why is not None or not event & _WRITABLE:
            return True, why
        return False, selectable.doWrite()

    def _end_later(self, selectable: Any, why: Any, is_read: bool) -> None:
        """End a connection in its turn. Until then it is not looked at."""
        selectable.stopReading()
        selectable.stopWriting()
        self._lost.add(functools.partial(self._end, selectable, why, is_read))

    def _end(self, selectable: Any, why: Any, is_read: bool) -> None:
        if not selectable.disconnected:  # Something else may have ended it meanwhile.
            log.callWithLogger(selectable, self._reactor._disconnectSelectable, selectable, why, is_read)
