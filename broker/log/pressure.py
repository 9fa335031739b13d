"""A lack of file descriptors or memory. The operation may succeed later; no disk has failed."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import TypeVar, cast

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.pause import pause

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S = 1.0
"""Delay between two attempts, in seconds."""

REMEDY = "raise the limit of open files (ulimit -n, LimitNOFILE) or give the machine more memory"

_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


def is_pressure(error: BaseException | None) -> bool:
    """Whether `error` reports a lack of descriptors or memory, and says nothing about a disk."""
    return isinstance(error, OSError) and error.errno in _ERRNOS


def retried(clock: Clock, what: str, attempt: Callable[[], Deferred[T]]) -> Deferred[T]:
    """The result of `attempt`, which is called again every second while it fails for lack of descriptors or
    memory. `what` names the work in log lines."""

    def again(failure: Failure) -> Deferred[T]:
        if not is_pressure(failure.value):
            return fail(failure)
        logger.warning("%s failed, next attempt in %g s: %s; %s", what, RETRY_S, failure.value, REMEDY)
        return pause(clock, RETRY_S).addCallback(lambda _: retried(clock, what, attempt))

    return cast("Deferred[T]", attempt().addErrback(again))
