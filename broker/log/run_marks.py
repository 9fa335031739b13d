"""Two files in each log directory that tell a starting broker whether records may be lost.

`.kafka_cleanshutdown` marks a clean stop, in the format of KIP-966, with the broker's epoch. `.holdfast-run`
is written when a process has registered; it holds the process's epoch and the system's id of this boot. When
a process is killed, the system still has its writes in memory and writes them to disk, unless the machine
goes down: so nothing is lost if the broker starts again in the same boot.

The epoch in both files is the *start epoch*, that of the process's first registration. A directory that was
restored from a copy names an earlier start epoch than the one that the controller has recorded.
"""

from __future__ import annotations

import json

NO_EPOCH = -1
"""The start epoch when no process is known."""

_VERSION = 0


def encode_clean_mark(start_epoch: int) -> bytes:
    return json.dumps({"version": _VERSION, "brokerEpoch": start_epoch}).encode()


def decode_clean_mark(data: bytes) -> int:
    """The start epoch in a mark of a clean stop; `NO_EPOCH` if it has none, as in Kafka before KIP-966."""
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return NO_EPOCH


def encode_run_mark(start_epoch: int, boot: str) -> bytes:
    return json.dumps({"version": _VERSION, "start_epoch": start_epoch, "boot": boot}).encode()


def decode_run_mark(data: bytes, boot: str | None) -> int:
    """The start epoch in a run mark of this boot; `NO_EPOCH` for a mark of another boot or unknown
    content."""
    try:
        mark = json.loads(data)
        return int(mark["start_epoch"]) if boot is not None and mark["boot"] == boot else NO_EPOCH
    except (ValueError, KeyError, TypeError):
        return NO_EPOCH
