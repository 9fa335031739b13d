"""Who sends a request of the classic group protocol."""

from __future__ import annotations

from holdfast_log.coordinator.groups.classic_group import ClassicCaller
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest


def caller_of(request: HeartbeatRequest | SyncGroupRequest) -> ClassicCaller:
    """The member that a request names."""
    return ClassicCaller(request.member_id, request.generation_id, request.group_instance_id)
