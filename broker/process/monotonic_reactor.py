"""Makes Twisted's reactor measure time by a clock that nobody can set.

Twisted's reactor times its calls by the time of day. If an administrator, or a time service, sets that back
by an hour, no timer ends for an hour; if it is set forward, every session and request times out at once.
"""

from __future__ import annotations

from typing import Any

from holdfast_log.clients.boot_clock import boot_s


def make_monotonic(reactor: Any) -> None:
    """Have `reactor.seconds()`, and so all its timers, follow `boot_s`. Call it before any `callLater`."""
    # ReactorBase reads the time only through this attribute, for new calls as for those that are due.
    reactor.seconds = boot_s
