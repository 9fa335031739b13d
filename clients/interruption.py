"""How a call that waits in one thread is ended by another thread, whose caller does not want it any more."""

from __future__ import annotations

from holdfast_log.clients.errors import RequestTimeoutError


class InterruptedCall(RequestTimeoutError):
    """Ends a call that nobody waits for any more. As after a timeout, what was asked for may still happen. No
    application sees it: the caller was cancelled."""

    retriable = False


def interrupted(call: str) -> InterruptedCall:
    """The error that ends a call."""
    return InterruptedCall(f"{call} was cancelled while it waited; what it asked for may still happen")
