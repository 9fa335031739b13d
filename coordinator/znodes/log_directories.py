"""/holdfast/log_directories/ID: the log directories that a broker has used. Holdfast's own.

If a disk is not mounted, its mount point is an empty directory that looks like a new log directory. This
record tells the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_log.coordinator.znodes.json_values import WRONG_SHAPE, BadZnode, decode_json, encode_json

LOG_DIRECTORIES = "/holdfast/log_directories"


def log_directories_path(broker_id: int) -> str:
    return f"{LOG_DIRECTORIES}/{broker_id}"


def encode_used_directories(used: Mapping[str, str]) -> bytes:
    """Encode `used`: directory id → the last path of the directory."""
    return encode_json({"version": 1, "used": dict(used)})


def decode_used_directories(path: str, data: bytes) -> dict[str, str]:
    """Raises `BadZnode`."""
    try:
        return {str(name): str(place) for name, place in decode_json(path, data)["used"].items()}
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not list log directories: {error!r}") from None
