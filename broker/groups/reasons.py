"""Why members come and go, as they say themselves (KIP-800): one line each in the broker's log."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


def note_reason(group_id: str, member_id: str, what: str, reason: str | None) -> None:
    """Log what a member does and why, if it says so. What clients send is quoted and cut: it can neither end
    the log's line nor fill the log."""
    if reason:
        _log.info("Member %.200r of group %.100r %s: %.255r", member_id, group_id, what, reason)
