"""What a broker answers that may not confirm: another broker may lead in its place, now or soon."""

from __future__ import annotations

from holdfast_log.broker.ownership.standings import outcome
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.ownership import ResourceStanding

_WHY = (
    "this broker cannot confirm who owns it: it has had no answer from ZooKeeper for too long, or its "
    "leadership is being moved"
)


def unconfirmed() -> BrokerError:
    """The error for requests. Clients look for the leader again."""
    return error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{_WHY}: look for the leader and try again")


def unconfirmed_standing(key: ResourceKey, standing: ResourceStanding) -> ResourceStanding:
    """The standing for an owner whose ownership this broker cannot confirm; all others are sent away."""
    is_owner = standing.error_code in (ErrorCode.NONE, ErrorCode.OWNERSHIP_DETACHED) and standing.incarnation
    if not is_owner:
        error = unconfirmed()
        return outcome(key, error.code, error.message)
    standing.error_code = ErrorCode.OWNERSHIP_DETACHED
    standing.error_message = f"{_WHY}: resume at the leader"
    return standing
