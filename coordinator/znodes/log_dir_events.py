"""/log_dir_event_notification: a broker tells the controller that a log directory has failed (KIP-112)."""

from __future__ import annotations

from holdfast_log.coordinator.znodes.json_values import WRONG_SHAPE, BadZnode, decode_json, encode_json

LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"

_LOG_DIR_FAILED = 1


def encode_log_dir_event(broker_id: int) -> bytes:
    return encode_json({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILED})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The id of the broker whose log directory has failed. Raises `BadZnode`."""
    try:
        return int(decode_json(path, data)["broker"])
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not name a broker: {error!r}") from None
