"""Tokens: what a resource's deciding broker knows about the incarnation of a grant."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.ownership.resources import Resource
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.ownership import Access


@dataclass(frozen=True, slots=True)
class TokenVerdict:
    """`newest` is the token of the newest grant; `is_held` says whether the owner of a current token still
    has the resource."""

    is_current: bool
    newest: int
    is_held: bool


def judge_token(resource: Resource, group: str, token: int) -> TokenVerdict:
    """Whether `token` is that of the newest grant in `group`. A writer is also superseded by the writer of
    another group, and by producers that share the partition.

    Raises BrokerError RESOURCE_NOT_FOUND if the group has not been granted the resource, or not with a token
    as high as this one.
    """
    entry = resource.peek(group)
    last = entry.last
    if last is None or token > last.incarnation or token < 1:
        known = "has no grant" if last is None else f"has no grant newer than {last.incarnation}"
        raise error_for(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"{token} is not a token of {resource.key} in group {group!r}, which {known}",
        )
    newest = last.incarnation
    if Access.WRITE in last.owner.access:
        newest = max(newest, resource.write_incarnation)
    is_current = token == newest
    return TokenVerdict(is_current, newest, is_current and not last.has_ended)
