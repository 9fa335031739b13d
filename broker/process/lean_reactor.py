"""Makes Twisted's reactor call the broker's own sockets without what Twisted does for each event.

For every event Twisted copies the logging context, so that whatever the call logs names its connection,
and enters the new one: that costs more than receiving a small request. The broker's log lines name their
connection themselves, so its sockets need the context only for an exception that escapes from them.

Between two looks at the events Twisted also looks for timed calls and calls from threads, at the cost of
another small request. That is done only if there are any.
"""

from __future__ import annotations

import select
import sys
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.python import log

from holdfast_log.broker.metrics.turn_times import TurnTimes
from holdfast_log.broker.network.tls.wire import TlsClient, TlsServer
from holdfast_log.broker.network.transport import FrameClient, FrameServer
from holdfast_log.broker.network.turns import SendingTurn


def make_lean(reactor: Any, turns: TurnTimes, sending: SendingTurn) -> None:
    """Have `reactor` read from the sockets of connections, with TLS or without, and write to them, without a
    logging context, `turns` count its turns, and what connections of `sending` answer be sent together if
    several are read in one turn. No effect on reactors that do not use epoll."""
    if isinstance(reactor, EPollReactor):
        _LeanPoll(reactor, turns, sending).install()


_LONGEST_S = 1_000_000
"""So long waits are left to the reactor, which knows what epoll takes."""
_READABLE, _WRITABLE = select.EPOLLIN, select.EPOLLOUT
_USUAL = frozenset((_READABLE, _WRITABLE, _READABLE | _WRITABLE))
_OURS = frozenset((FrameServer, FrameClient, TlsServer, TlsClient))


class _LeanPoll:
    """What `EPollReactor.doPoll` does, with a short way for our own sockets that are readable or writable."""

    def __init__(self, reactor: Any, turns: TurnTimes, sending: SendingTurn) -> None:
        self._reactor = reactor
        self._sending = sending
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
                events = reactor._poller.poll(-1 if timeout is None else timeout, len(selectables))
            except InterruptedError:
                return
            finally:
                self._woke_s = self._clock_s()
            is_several = len(events) > 1
            if is_several:
                sending.begin()
            for fd, event in events:
                selectable = selectables.get(fd)
                if event in _USUAL and type(selectable) in _OURS:
                    is_read, why = False, None
                    try:
                        if event != _WRITABLE:
                            is_read, why = True, selectable.doRead()
                        if why is None and event != _READABLE:
                            is_read, why = False, selectable.doWrite()
                    except BaseException:
                        why = sys.exc_info()[1]
                        log.callWithLogger(selectable, log.err)
                    if why is not None:
                        log.callWithLogger(
                            selectable, reactor._disconnectSelectable, selectable, why, is_read
                        )
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
