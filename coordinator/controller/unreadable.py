"""Znodes that the controller cannot read: reported, set aside, and read again when they change.

A topic with an unreadable znode is left exactly as it is: the controller elects no leaders in it, deletes
nothing of it, and sends no broker a list of replicas that claims to be complete, since it would lack this
topic's replicas. All other topics work as usual.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.controller.events import ControllerEvent, TopicReadAgain
from holdfast_log.coordinator.controller.reads import UnreadableTopic, read_topic
from holdfast_log.coordinator.zookeeper.interface import WatchEvent, ZooKeeperSession

_log = logging.getLogger(__name__)


class ReadingReports:
    """Logs what cannot be read: each znode once in a term, and again when it is broken in another way."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}

    def unreadable(self, errors: Mapping[str, str], consequence: str) -> None:
        """`errors` has the fault of each path; `consequence` says what follows and what to do."""
        for path, error in errors.items():
            if self._reported.get(path) != error:
                self._reported[path] = error
                _log.error("Cannot read the znode %s: %s. %s", path, error, consequence)

    def readable(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self._reported.pop(path, None) is not None:
                _log.info("The znode %s can be read again", path)


class UnreadableTopics:
    """Reads unreadable topics again whenever their znodes change, during one term.

    Puts a `TopicReadAgain` for each that has become readable, or has been removed.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        new_topic_id: Callable[[], uuid.UUID],
        reports: ReadingReports,
        put: Callable[[ControllerEvent], None],
        failed: Callable[[Failure], None],
    ) -> None:
        self._session = session
        self._new_topic_id = new_topic_id
        self._reports = reports
        self._put = put
        self._failed = failed
        self._over = False

    def begin(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Follow these topics, given with the faults of their znodes by path."""
        for name, errors in topics.items():
            ensureDeferred(self._follow(name, errors)).addErrback(self._failed)

    def end(self) -> None:
        self._over = True

    async def _follow(self, name: str, errors: Mapping[str, str]) -> None:
        paths = dict.fromkeys(errors)
        report_unreadable_topic(self._reports, name, errors)
        while not self._over:
            changed: Deferred[None] = Deferred()
            try:
                topic = await read_topic(self._session, name, self._new_topic_id, _firing(changed))
            except UnreadableTopic as error:
                paths |= dict.fromkeys(error.errors)
                self._reports.readable([path for path in paths if path not in error.errors])
                report_unreadable_topic(self._reports, name, error.errors)
                await changed
                continue
            self._reports.readable(paths)
            if not self._over:
                self._put(TopicReadAgain(name, topic))
            return


def report_unreadable_topic(reports: ReadingReports, name: str, errors: Mapping[str, str]) -> None:
    reports.unreadable(
        errors,
        f"Topic {name!r} is set aside: its leaders stay as they are, its logs are kept, and it cannot be "
        "created or deleted. Restore the znode's data; the controller then takes the topic up at once",
    )


def _firing(changed: Deferred[None]) -> Callable[[WatchEvent], None]:
    def fire(event: WatchEvent) -> None:
        if not changed.called:
            changed.callback(None)

    return fire
