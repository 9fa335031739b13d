"""Election of the controller: the broker that holds the ephemeral znode /controller.

One multi creates /controller and raises /controller_epoch, so every controller has its own epoch. Every write
of a controller checks the version of /controller_epoch. A later election changes that version, so all writes
that the former controller still has in flight fail.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Protocol

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock, TimeOfDay
from holdfast_log.coordinator.cluster.controller_epoch import highest_controller_epoch
from holdfast_log.coordinator.cluster.identity import create_if_missing
from holdfast_log.coordinator.cluster.term import Term
from holdfast_log.coordinator.znodes.controller import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import (
    BadVersion,
    Create,
    Delete,
    MultiFailed,
    NoNode,
    SessionExpired,
    SetData,
    Stat,
    WatchEvent,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)

_FIRST_EPOCH = 1
_PAUSE_S = 1.0
_PERSISTENT = 0
"""The ephemeral owner that ZooKeeper names for a persistent znode."""

_log = logging.getLogger(__name__)


class CandidacyListener(Protocol):
    """Receives the results of elections. None of the methods may raise."""

    def elected(self, term: Term) -> None:
        """This broker has become the controller."""
        ...

    def resigned(self) -> None:
        """This broker is no longer the controller."""
        ...

    def controller_is(self, broker_id: int | None) -> None:
        """Broker `broker_id` is the controller now; None while there is none or it is unknown."""
        ...


class Candidacy:
    """Stands for election whenever there is no controller; a `MembershipListener`, as only members may
    stand."""

    def __init__(self, broker_id: int, clock: Clock, date_ms: TimeOfDay) -> None:
        self.controller_id: int | None = None
        self.term: Term | None = None
        """This broker's term while it is the controller."""
        self._broker_id = broker_id
        self._clock = clock
        self._date_ms = date_ms
        self._listeners: list[CandidacyListener] = []
        self._session: ZooKeeperSession | None = None
        self._looking = False
        self._look_again = False
        self._elected_by = 0
        """The transaction that created /controller for this broker's term."""

    def add_listener(self, listener: CandidacyListener) -> None:
        self._listeners.append(listener)

    # MembershipListener

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        self._session = session
        self._look()

    def suspended(self) -> None:
        pass

    def resumed(self) -> None:
        self._look()

    def expired(self) -> None:
        session, term = self._session, self.term
        self._session = None
        self._controller_is(None)
        if session is not None and term is not None and not session.expired:
            _give_up(term)  # The registration was removed, and the session still holds /controller.

    def registration_failed(self, error: Exception) -> None:
        pass

    def stand_down(self) -> None:
        """Resign, and do not stand again: the broker is about to stop."""
        session, term = self._session, self.term
        self._session = None
        self._controller_is(None)
        if session is not None and term is not None:
            _give_up(term)

    def give_up_term(self) -> None:
        """Resign because of an error in this term, and stand again after a pause."""
        term = self.term
        if term is not None:
            self._controller_is(None)
            self._clock.callLater(_PAUSE_S, lambda: _give_up(term).addCallback(lambda outcome: self._look()))

    # Election

    def _look(self, event: WatchEvent | None = None) -> None:
        """Read the current controller, and stand if there is none.

        One read at a time; a change during a read causes another.
        """
        if self._session is None:
            return
        if self._looking:
            self._look_again = True
            return
        self._looking, self._look_again = True, False
        session = self._session
        ensureDeferred(self._find_controller(session)).addCallbacks(
            lambda found: self._looked(session, *found), lambda failure: self._look_failed(session, failure)
        )

    def _looked(self, session: ZooKeeperSession, controller_id: int | None, term: Term | None) -> None:
        self._looking = False
        if session is not self._session:
            self._look()
            return
        self._controller_is(controller_id, term)
        if self._look_again:
            self._look()

    def _look_failed(self, session: ZooKeeperSession, failure: Failure) -> None:
        self._looking = False
        if session is not self._session:
            self._look()
        elif not isinstance(failure.value, SessionExpired):  # `expired` and `registered` handle that.
            _log.error(
                "reading the controller from ZooKeeper failed; retrying: %s", failure.getErrorMessage()
            )
            self._clock.callLater(_PAUSE_S, self._look)

    async def _find_controller(self, session: ZooKeeperSession) -> tuple[int | None, Term | None]:
        """The controller's broker id, and the term if it is this broker; no id if it cannot be read."""
        while True:
            try:
                await session.exists(CONTROLLER, self._look)
                data, stat = await session.get(CONTROLLER)
            except NoNode:
                await self._stand(session)
                continue
            try:
                controller_id = decode_controller(data)
            except BadZnode as error:
                if stat.ephemeral_owner not in (session.session_id, _PERSISTENT):
                    _log.error("Waiting until the controller rewrites its unreadable znode: %s", error)
                    return None, None
                await self._replace_unreadable(session, stat, error)
                continue
            if stat.ephemeral_owner != session.session_id:
                return controller_id, None
            if self.term is not None and stat.czxid == self._elected_by:
                return controller_id, self.term
            # This broker was elected, maybe again: another process may have removed the znode of its last
            # term.
            term = await self._term(session, stat)
            if term is not None:
                self._elected_by = stat.czxid
                return controller_id, term
            _log.error(
                "%s was changed by another process after this broker's election; standing again",
                CONTROLLER_EPOCH,
            )
            with contextlib.suppress(NoNode, ZooKeeperConnectionLost):
                await session.delete(CONTROLLER)

    async def _replace_unreadable(self, session: ZooKeeperSession, stat: Stat, error: BadZnode) -> None:
        """Rewrite /controller if this broker's session holds it; remove it if no session does."""
        with contextlib.suppress(NoNode, BadVersion, ZooKeeperConnectionLost):
            if stat.ephemeral_owner == session.session_id:
                _log.error("This broker is the controller and rewrites its znode: %s", error)
                controller = encode_controller(self._broker_id, self._date_ms())
                await session.set(CONTROLLER, controller, stat.version)
            else:
                _log.error("Removing %s, which no broker's session holds: %s", CONTROLLER, error)
                await session.delete(CONTROLLER, stat.version)

    async def _stand(self, session: ZooKeeperSession) -> None:
        """Try to become the controller; the caller reads the outcome."""
        try:
            data, stat = await session.get(CONTROLLER_EPOCH)
        except NoNode:
            await create_if_missing(session, CONTROLLER_EPOCH, encode_controller_epoch(_FIRST_EPOCH - 1))
            return
        try:
            epoch = decode_controller_epoch(data) + 1
        except BadZnode as error:
            epoch = max(stat.version, await highest_controller_epoch(session)) + 1
            _log.error("%s; the next controller epoch is %d, above all that are known", error, epoch)
        controller = encode_controller(self._broker_id, self._date_ms())
        try:
            await session.multi(
                [
                    Create(CONTROLLER, controller, ephemeral=True),
                    SetData(CONTROLLER_EPOCH, encode_controller_epoch(epoch), stat.version),
                ]
            )
        except (MultiFailed, ZooKeeperConnectionLost) as error:
            _log.debug("lost the election of the controller: %s", error)

    async def _term(self, session: ZooKeeperSession, controller: Stat) -> Term | None:
        """The term that began when this session created /controller. None if another process has changed the
        controller epoch since: ZooKeeper would then refuse every write of this controller."""
        try:
            data, stat = await session.get(CONTROLLER_EPOCH)
        except NoNode:
            return None
        if stat.mzxid != controller.czxid:
            return None
        return Term(session, self._broker_id, decode_controller_epoch(data), stat.version)

    def _controller_is(self, controller_id: int | None, term: Term | None = None) -> None:
        was_term, self.term = self.term, term
        changed = self.controller_id != controller_id
        self.controller_id = controller_id
        if was_term is not None and term is not was_term:
            _log.info("this broker is no longer the controller (epoch %d)", was_term.epoch)
            for listener in self._listeners:
                listener.resigned()
        if changed:
            for listener in self._listeners:
                listener.controller_is(controller_id)
        if term is not None and term is not was_term:
            _log.info("this broker is the controller, epoch %d", term.epoch)
            for listener in self._listeners:
                listener.elected(term)


def _give_up(term: Term) -> Deferred[None]:
    """Remove /controller if it is still this term's. Never fails: otherwise it ends with the session."""
    given_up = term.session.multi([term.guard(), Delete(CONTROLLER)])
    return given_up.addBoth(lambda outcome: None)
