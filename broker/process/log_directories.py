"""Compares the log directories that a broker finds at its start with those that it has used before.

Each directory holds an id of its own, in `.holdfast-directory`, and a znode lists the ids that this broker
has used. An id that is listed and not found belongs to a disk that is not mounted, was replaced, or is no
longer in log.dirs. Until the operator decides, a directory without an id is then not used: probably it is an
empty mount point. Replicas whose log is not found are offline. `log.dirs.lost` names directories that will
not come back: their replicas are made anew, empty, but only where they are not counted among those in sync.
"""

from __future__ import annotations

import errno
import logging
import uuid
from collections.abc import Callable, Collection, Mapping

from broker.log.manager import LogManager
from coordinator.cluster.log_directories import read_used_directories
from coordinator.znodes.json_values import BadZnode
from coordinator.zookeeper.interface import ZooKeeper

_log = logging.getLogger(__name__)


async def compare_directories(
    zookeeper: ZooKeeper,
    logs: LogManager,
    broker_id: int,
    given_up: Collection[str],
    random_bytes: Callable[[int], bytes],
) -> dict[str, str] | None:
    """Take new directories into use, or have them withheld while others are missing. `given_up` are the ids
    in log.dirs.lost.

    Returns the record for `write_used_directories`, once this broker is registered: until then another one
    may have its id. None where the record stays. Raises `IdentityError` for an id that cannot be read.
    """
    try:
        known = await read_used_directories(zookeeper, broker_id)
    except BadZnode as error:
        _log.error("%s; the znode is written anew, with the log directories that are there", error)
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
    """The directories that were used and are neither present nor given up: their ids and last places."""
    return {name: place for name, place in known.items() if name not in present and name not in given_up}
