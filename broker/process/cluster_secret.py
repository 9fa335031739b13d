"""Reads the cluster's secret from its file (`cluster.secret.file`)."""

from __future__ import annotations

import os
import stat

from holdfast_log.broker.network.handshake import ClusterSecret
from holdfast_log.clients.settings import SettingError

SETTING = "cluster.secret.file"
SECRET_BYTES_MIN = 32
"""Shorter secrets can be found by trying."""
_FILE_BYTES_MAX = 64 * 1024
_MAKE_ONE = "make it with: (umask 077; openssl rand -hex 32 > FILE)"


def read_cluster_secret(path: str | None) -> ClusterSecret | None:
    """The secret in the file, one key on each line; None without a file. Raises SettingError if it cannot be
    read, is too short, or if users who are neither its owner nor in its group may read or write it."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}; {_MAKE_ONE}") from None
    if mode & (stat.S_IRWXO):
        raise _refused(path, "every user of this machine may use that file: run chmod o-rwx on it")
    keys = tuple(line.strip() for line in content.splitlines() if line.strip())
    if not keys:
        raise _refused(path, f"the file is empty; {_MAKE_ONE}")
    if any(len(key) < SECRET_BYTES_MIN for key in keys):
        raise _refused(path, f"expected at least {SECRET_BYTES_MIN} characters on each line; {_MAKE_ONE}")
    return ClusterSecret(keys)


def _refused(path: str, reason: str) -> SettingError:
    return SettingError(f"{SETTING}={path!r} is not allowed: {reason}")
