"""What happens to producers when the process forks: the child has their memory, but not their threads.

Every producer's lock is held while the process is copied, so that the child finds it free and the queues
whole.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from holdfast_log.clients.sending.producer_lock import ProducerLock


class Forkable(Protocol):
    """What a fork affects."""

    lock: ProducerLock

    def has_forked(self, parent: int) -> None:
        """This process is a fork of `parent`, to which the producer belongs. Called with the lock."""
        ...


watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
"""The producers that have a thread."""
_held: list[Forkable] = []


def _before() -> None:
    for each in list(watched):
        each.lock.acquire()
        _held.append(each)


def _release() -> None:
    while _held:
        _held.pop().lock.release()


def _in_child() -> None:
    for each in _held:
        each.has_forked(os.getppid())
    _release()


if hasattr(os, "register_at_fork"):  # Not on Windows, which has no fork.
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_in_child)
