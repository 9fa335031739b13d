"""Compares the log directories that a broker finds at its start with those that it has used before.

Each directory holds an id of its own, in `.holdfast-directory`, and a znode lists the ids of the directories
that this broker has used. If a listed id is not found, its disk is not mounted, was replaced, or is no longer
in log.dirs. Until the operator decides, the broker then uses no directory without an id, since it may be an
empty mount point, and replicas whose log is missing are offline. The operator names directories that are lost
for good in `log.dirs.lost`. The broker creates their replicas again, empty, except those that are in sync.
"""

from __future__ import annotations

import errno
import logging
import uuid
from collections.abc import Callable, Collection, Mapping

from holdfast_log.broker.log.manager import LogManager
from holdfast_log.coordinator.cluster.log_directories import read_used_directories
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import ZooKeeper

_log = logging.getLogger(__name__)


async def compare_directories(
    zookeeper: ZooKeeper,
    logs: LogManager,
    broker_id: int,
    given_up: Collection[str],
    random_bytes: Callable[[int], bytes],
) -> dict[str, str] | None:
    """Take new directories into use, or withhold them while others are missing. `given_up` are the ids in
    log.dirs.lost.

    Returns the record for `write_used_directories`, or None if the record need not change. Write it only once
    this broker is registered: until then another broker may have its broker id. Raises `IdentityError` for a
    directory id that cannot be read.
    """
    try:
        known = await read_used_directories(zookeeper, broker_id)
    except BadZnode as error:
        _log.error("%s; this broker writes the znode again, with the log directories it finds", error)
        known = {}
    found = {directory: directory.directory_id() for directory in logs.live_directories}
    present = set(found.values())
    missing = missing_directories(known, {each for each in present if each is not None}, given_up)
    if missing:
        places = ", ".join(f"{name} (last at {place})" for name, place in missing.items())
        _log.error(
            "Log directories that this broker has used are missing: %s. Mount them and restart the broker. "
            "If they are lost, set log.dirs.lost=%s and restart the broker; it then copies their "
            "replicas from other brokers. Until then these replicas are offline",
            places,
            ",".join(missing),
        )
        logs.missing = tuple(missing)
        for directory, directory_id in found.items():
            if directory_id is None and directory.is_unused():
                logs.fail_directory(
                    directory,
                    OSError(
                        errno.ENODEV,
                        f"it is new, while directories of broker {broker_id} are missing: {places}. Mount "
                        "them, name them in log.dirs.lost, or give this broker another broker.id",
                    ),
                )
        return None
    for directory, directory_id in list(found.items()):
        if directory_id is None:
            found[directory] = made = str(uuid.UUID(bytes=random_bytes(16), version=4))
            directory.write_directory_id(made)
    used = {directory_id: directory.path for directory, directory_id in found.items() if directory_id}
    logs.lost = tuple(each for each in given_up if each not in used)
    return None if known == used else used


def missing_directories(
    known: Mapping[str, str], present: Collection[str], given_up: Collection[str]
) -> dict[str, str]:
    """The used directories that are neither present nor given up: id → last path."""
    return {name: place for name, place in known.items() if name not in present and name not in given_up}
