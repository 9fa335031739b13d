"""/holdfast/first_leader_epoch: the leader epoch in which new partitions begin. Holdfast's own.

One number for all topics, however many have been deleted: it is above all their leader epochs.
"""

from __future__ import annotations

from holdfast_log.coordinator.znodes.json_values import WRONG_SHAPE, BadZnode, decode_json, encode_json, int32

FIRST_LEADER_EPOCH = "/holdfast/first_leader_epoch"


def encode_first_leader_epoch(epoch: int) -> bytes:
    return encode_json({"version": 1, "leader_epoch": epoch})


def decode_first_leader_epoch(data: bytes) -> int:
    """Raises `BadZnode`."""
    try:
        return int32(decode_json(FIRST_LEADER_EPOCH, data)["leader_epoch"])
    except WRONG_SHAPE as error:
        raise BadZnode(f"{FIRST_LEADER_EPOCH} does not hold a leader epoch: {error!r}") from None
