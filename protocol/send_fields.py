"""The fields that a producer reads and writes for each message: base classes of the classes with them.

If `protocol._send_path` was compiled, it has the same base classes, whose fields it finds without looking
up names, and queues the usual message in one call (`bind`). The environment variable HOLDFAST_PURE_PYTHON
selects the classes of this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

PURE_PYTHON_VARIABLE = "HOLDFAST_PURE_PYTHON"


def _send_path() -> ModuleType | None:
    if os.environ.get(PURE_PYTHON_VARIABLE):
        return None
    try:
        from holdfast_log.protocol import _send_path
    except ImportError:
        return None
    return _send_path


compiled = _send_path()
"""The compiled module; None if it is not used."""


class MessageFields:
    """Of a message that the application hands to `send`."""

    __slots__ = (
        "expected_version",
        "headers",
        "key",
        "offset",
        "partition",
        "timestamp",
        "topic",
        "topic_id",
        "value",
    )


class PlaceFields:
    """Of a response: the batch and the index at which its message was queued."""

    __slots__ = ("_batch", "_index")


class BuilderFields:
    """Of the builder of a batch: the columns of the records, and the size that they will take."""

    __slots__ = ("keys", "size", "timestamps", "values")


class BatchFields:
    """Of a batch: its builder, the memory that it uses, and whether it takes no more records."""

    __slots__ = ("builder", "cost", "is_closed")


class PartitionFields:
    """Of the queue of a partition."""

    __slots__ = ("batches",)


class TopicFields:
    """Of the queues of a topic."""

    __slots__ = ("batch_size", "keyless", "keyless_partition", "partition_count", "partitions")


class QueuesFields:
    """Of all queues of a producer."""

    __slots__ = ("barrier", "fatal_error", "is_closed", "topics", "used")


class SenderFields:
    """Of what has the method `send`: the limits, and what the compiled method calls."""

    __slots__ = ("_acquire", "_buffer_memory", "_murmur2", "_queues", "_release", "_size_max", "_wall_ms")

    _acquire: Callable[[], bool]
    _release: Callable[[], None]
    _queues: QueuesFields | None
    _wall_ms: Callable[[], int] | None
    """None for the clock of the system, which is read without a call."""
    _murmur2: Callable[[bytes], int] | None
    """None if the partition of a message is chosen in another way."""
    _size_max: int
    _buffer_memory: int


if not TYPE_CHECKING and compiled is not None:
    MessageFields = compiled.MessageFields
    PlaceFields = compiled.PlaceFields
    BuilderFields = compiled.BuilderFields
    BatchFields = compiled.BatchFields
    PartitionFields = compiled.PartitionFields
    TopicFields = compiled.TopicFields
    QueuesFields = compiled.QueuesFields
    SenderFields = compiled.SenderFields
