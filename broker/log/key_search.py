"""Finds the last record of a key in a log with `key.versions`.

`broker.log.key_reading` brings the index up to the log's end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from holdfast_log.broker.log.key_runs import DamagedRun
from holdfast_log.broker.log.key_versions import KeyVersions
from holdfast_log.broker.log.log import Log
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for

logger = logging.getLogger(__name__)


def last_offset_of_key(log: Log, digest: bytes) -> int:
    """The offset of the last record with a key, by the key's digest; -1 if the log has none.

    Raises BrokerError: POLICY_VIOLATION without key.versions, NOT_LEADER_OR_FOLLOWER while the index of
    keys is reading records from the log.
    """
    log.check_usable()
    index = _current_keys(log)
    try:
        offset = index.last_offset(digest)
    except OSError as error:
        raise log.refused(error) from error
    except DamagedRun as error:
        raise keys_damaged(log, str(error)) from error
    return offset if offset >= log.log_start_offset else -1


def cold_key_search(log: Log, digests: Sequence[bytes]) -> Callable[[], None] | None:
    """Reads for a worker, before `last_offset_of_key` is called with these digests; None if it would not
    wait for the device. Raises as `last_offset_of_key` does."""
    log.check_usable()
    try:
        return _current_keys(log).cold_search(digests)
    except OSError as error:
        raise log.refused(error) from error
    except DamagedRun as error:
        raise keys_damaged(log, str(error)) from error


def _current_keys(log: Log) -> KeyVersions:
    if log.keys is None:
        raise error_for(
            ErrorCode.POLICY_VIOLATION,
            f"{log.topic_partition.topic} has key.versions=false: no record can depend on the last "
            "one with its key",
        )
    if log.keys.end_offset != log.log_end_offset:
        raise _keys_behind(log, "it has not read the whole log yet")
    return log.keys


def keys_damaged(log: Log, why: str) -> BrokerError:
    """Have all keys read from the log again, because a file of the index is damaged or missing. Returns
    the error for the caller."""
    assert log.keys is not None
    logger.warning("%s: all keys are read from the log again: %s", log.topic_partition, why)
    log.keys.reset(log.log_start_offset)
    return _keys_behind(log, why)


def _keys_behind(log: Log, why: str) -> BrokerError:
    log.events.keys_behind(log)
    return error_for(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"the index of keys of {log.topic_partition} cannot be asked now: {why}; try again",
    )
