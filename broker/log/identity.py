"""Owner of the log directories: the broker and the cluster named in meta.properties."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.log.checkpoints import MetaProperties
from holdfast_log.broker.log.directory import IdentityError, LogDirectory


def known_identity(directories: Sequence[LogDirectory]) -> MetaProperties | None:
    """The owner of the directories, which must be open; None if all are new.

    Raises `IdentityError` if they have different owners.
    """
    known = None
    for directory in directories:
        meta = directory.identity()
        if meta is None:
            continue
        if known is not None and meta != known:
            raise IdentityError(
                f"log directory {directory.path} belongs to {meta}, but another log directory to {known}"
            )
        known = meta
    return known


def check_owner(directories: Sequence[LogDirectory], meta: MetaProperties) -> None:
    """Raises `IdentityError` if a directory belongs to another broker or another cluster."""
    known = known_identity(directories)
    if known is not None:
        if known.broker_id != meta.broker_id:
            raise IdentityError(
                f"the log directories belong to broker {known.broker_id}, not to broker {meta.broker_id}"
                ": correct broker.id or log.dirs"
            )
        if known.cluster_id is not None and known.cluster_id != meta.cluster_id:
            raise IdentityError(
                f"the log directories belong to cluster {known.cluster_id}, not to {meta.cluster_id}: "
                "correct zookeeper.connect (its /chroot too) or log.dirs"
            )


def claim(directories: Sequence[LogDirectory], meta: MetaProperties) -> None:
    """Write the owner into the directories. Raises `IdentityError` as `check_owner` does, and OSError."""
    check_owner(directories, meta)
    for directory in directories:
        if directory.identity() != meta:
            directory.write_identity(meta)
