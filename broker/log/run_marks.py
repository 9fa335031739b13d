"""Two files in each log directory by which a broker that starts knows whether anything may be lost.

`.kafka_cleanshutdown` marks a clean stop, in the format of KIP-966: it names the epoch under which the broker
was registered. `.holdfast-run` is written when a process has registered: it names that epoch and the
system's id of this boot. A process that was killed leaves its writes to the system, which keeps them until
the machine goes down: in the same boot nothing is lost.

The epoch is the *start epoch*, that of the process's first registration. A directory that was restored from
a copy names an earlier one than the controller has recorded.
"""

from __future__ import annotations

import json

NO_EPOCH = -1
"""The start epoch of a process that is not known."""

_VERSION = 0


def encode_clean_mark(start_epoch: int) -> bytes:
    return json.dumps({"version": _VERSION, "brokerEpoch": start_epoch}).encode()


def decode_clean_mark(data: bytes) -> int:
    """The start epoch in a mark; `NO_EPOCH` in one that has none, as Kafka wrote it before KIP-966."""
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return NO_EPOCH


def encode_run_mark(start_epoch: int, boot: str) -> bytes:
    return json.dumps({"version": _VERSION, "start_epoch": start_epoch, "boot": boot}).encode()


def decode_run_mark(data: bytes, boot: str | None) -> int:
    """The start epoch in a mark of this boot; `NO_EPOCH` for one of another boot or unknown content."""
    try:
        mark = json.loads(data)
        return int(mark["start_epoch"]) if boot is not None and mark["boot"] == boot else NO_EPOCH
    except (ValueError, KeyError, TypeError):
        return NO_EPOCH
