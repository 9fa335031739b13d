"""CheckToken: whether a token is that of the newest grant of a resource.

A token is the incarnation of a grant. It only rises: a storage that knows nothing of Holdfast refuses writes
with a lower token than it has seen (etcd's revision, Chubby's sequencer). docs/tokens.md is the recipe.
"""

from __future__ import annotations

import enum

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.ownership import NO_PARTITION, NOT_ADVERTISED
from holdfast_log.protocol.schema import Int8, Int16, Int32, Int64, struct

FEATURE = "holdfast.tokens"


class TokenStanding(enum.IntEnum):
    """Whether a newer grant exists."""

    CURRENT = 0
    SUPERSEDED = 1


@struct
class CheckTokenResponse(Response):
    """`standing` is a `TokenStanding`, and `newest` the token of the newest grant. `is_held`: the token is
    current, and its owner has neither released the resource nor lost it to silence."""

    error_code: Int16
    error_message: str | None = None
    standing: Int8 = TokenStanding.SUPERSEDED
    newest: Int64 = -1
    is_held: bool = False


@request(key=30029, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class CheckTokenRequest(Request[CheckTokenResponse]):
    """Asks the broker that decides about a resource: the partition's leader, or the coordinator of `group`
    for a name (partition -1). RESOURCE_NOT_FOUND for a token higher than any that the group was granted."""

    group: str
    name: str
    partition: Int32 = NO_PARTITION
    token: Int64
