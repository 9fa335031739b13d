"""The reasons that members give for joining and leaving (KIP-800): one line each in the broker's log."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


def note_reason(group_id: str, member_id: str, what: str, reason: str | None) -> None:
    """Log what a member does and the reason that it gives, if any. Text from clients is quoted and cut, so
    that it can neither end the log's line nor fill the log."""
    if reason:
        _log.info("Member %.200r of group %.100r %s: %.255r", member_id, group_id, what, reason)
