"""Reads from a file by which user and password this process authenticates itself to ZooKeeper."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from holdfast_log.clients.settings import SettingError
from holdfast_log.coordinator.znodes.access import restricted
from holdfast_log.coordinator.zookeeper.access import Identity, for_everybody

DIGEST_FILE = "zookeeper.digest.file"
SET_ACL = "zookeeper.set.acl"
_BYTES_MAX = 4096
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MAKE_ONE = 'make it with: (umask 077; echo "holdfast:$(openssl rand -hex 32)" > FILE)'


def zookeeper_identity(digest_file: str | None, *, restricts: bool) -> Identity:
    """The identity of a broker's sessions. `digest_file` and `restricts` are the values of the settings
    `DIGEST_FILE` and `SET_ACL`. Raises SettingError, which never shows the password."""
    if restricts and digest_file is None:
        raise SettingError(
            f"{SET_ACL}=true is not allowed without {DIGEST_FILE}: name a file with USER:PASSWORD, the same "
            f"for all brokers; {_MAKE_ONE}"
        )
    digest = None if digest_file is None else _read_digest(digest_file)
    return Identity(digest, restricted if restricts else for_everybody)


def _read_digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}; {_MAKE_ONE}") from None
    if mode & _OTHERS:
        raise _refused(path, f"other users of this machine may use that file: run chmod 600 {path}")
    line = content.strip()
    user, colon, password = line.partition(b":")
    if len(content) > _BYTES_MAX or not (user and colon and password) or not _is_plain(line):
        raise _refused(path, f"expected USER:PASSWORD on one line, in ASCII without spaces; {_MAKE_ONE}")
    return line.decode("ascii")


def _is_plain(line: bytes) -> bool:
    return all(0x20 < byte < 0x7F for byte in line)


def _refused(path: str, reason: str) -> SettingError:
    return SettingError(f"{DIGEST_FILE}={path!r} is not allowed: {reason}")


def make_digest_file(path: Path, user: str = "holdfast") -> None:
    """Write a new password into a file, unless the file exists. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, stat.S_IRUSR | stat.S_IWUSR)
    except FileExistsError:
        return
    with open(descriptor, "w") as file:
        file.write(f"{user}:{secrets.token_hex(32)}\n")
