"""Two files in each log directory that tell a starting broker whether records may be lost.

`.kafka_cleanshutdown` marks a clean stop, in the format of KIP-966, with the broker's epoch. `.holdfast-run`
is written when a process has registered; it holds the process's epoch and the system's id of this boot. When
a process is killed, the system still has its writes in memory and writes them to disk, unless the machine
goes down: so nothing is lost if the broker starts again in the same boot.

The epoch in both files is the *start epoch*, that of the process's first registration. A directory that was
restored from a copy names an earlier start epoch than the one that the controller has recorded. The run mark
also names the *lineage*: the start epochs of the processes before it whose writes the directory still holds.
A broker may restart several times before a controller records one of its start epochs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

NO_EPOCH = -1
"""The start epoch when no process is known."""

LINEAGE_MAX = 20
"""Number of start epochs that a run mark names at most."""

_VERSION = 0


def encode_clean_mark(start_epoch: int) -> bytes:
    return json.dumps({"version": _VERSION, "brokerEpoch": start_epoch}).encode()


def decode_clean_mark(data: bytes) -> int:
    """The start epoch in a mark of a clean stop; `NO_EPOCH` if it has none, as in Kafka before KIP-966."""
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return NO_EPOCH


def encode_run_mark(start_epoch: int, boot: str, earlier: Sequence[int] = ()) -> bytes:
    """`earlier` are the start epochs of the processes before, whose writes are all there, latest first."""
    mark = {"version": _VERSION, "start_epoch": start_epoch, "boot": boot, "earlier": list(earlier)}
    return json.dumps(mark).encode()


def decode_lineage(data: bytes) -> tuple[int, ...]:
    """The start epochs in a run mark of any boot: that of its process, then the earlier ones. Empty for
    unknown content."""
    try:
        mark = json.loads(data)
        return int(mark["start_epoch"]), *(int(epoch) for epoch in mark.get("earlier", ()))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def decode_run_mark(data: bytes, boot: str | None) -> int:
    """The start epoch in a run mark of this boot; `NO_EPOCH` for a mark of another boot or unknown
    content."""
    try:
        mark = json.loads(data)
        return int(mark["start_epoch"]) if boot is not None and mark["boot"] == boot else NO_EPOCH
    except (ValueError, KeyError, TypeError):
        return NO_EPOCH
