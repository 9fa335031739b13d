"""Logs the reasons that members give for joining and leaving (KIP-800), in one line each."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


def note_reason(group_id: str, member_id: str, what: str, reason: str | None) -> None:
    """Log a member's action and its reason, if it gives one. Text from clients is quoted and shortened, so
    that it can neither break the log line nor fill the log."""
    if reason:
        _log.info("Member %.200r of group %.100r %s: %.255r", member_id, group_id, what, reason)
