"""Reads from a file by which user and password this process authenticates itself to ZooKeeper."""

from __future__ import annotations

import importlib.util
import os
import secrets
import stat
from pathlib import Path

from holdfast_log.clients.settings import SettingError
from holdfast_log.coordinator.znodes.access import restricted
from holdfast_log.coordinator.zookeeper.access import Identity, for_everybody

DIGEST_FILE = "zookeeper.digest.file"
SASL_FILE = "zookeeper.sasl.file"
SET_ACL = "zookeeper.set.acl"
_BYTES_MAX = 4096
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MAKE_ONE = 'make it with: (umask 077; echo "holdfast:$(openssl rand -hex 32)" > FILE)'


def zookeeper_identity(digest_file: str | None, sasl_file: str | None = None, *, restricts: bool) -> Identity:
    """The identity of a broker's sessions. The arguments are the values of the settings `DIGEST_FILE`,
    `SASL_FILE` and `SET_ACL`. Raises SettingError, which never shows a password."""
    if restricts and digest_file is None and sasl_file is None:
        raise SettingError(
            f"{SET_ACL}=true is not allowed without {DIGEST_FILE} or {SASL_FILE}: name a file with "
            f"USER:PASSWORD, the same for all brokers; {_MAKE_ONE}"
        )
    digest = None if digest_file is None else _read_login(DIGEST_FILE, digest_file)
    sasl = None if sasl_file is None else _read_login(SASL_FILE, sasl_file)
    if sasl is not None and importlib.util.find_spec("puresasl") is None:
        raise SettingError(
            f"{SASL_FILE} needs the package pure-sasl: run pip install 'holdfast-log[zookeeper-sasl]'"
        )
    return Identity(digest, restricted if restricts else for_everybody, sasl=sasl)


def _read_login(setting: str, path: str) -> str:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise _refused(setting, path, f"it cannot be read: {error.strerror}; {_MAKE_ONE}") from None
    if mode & _OTHERS:
        raise _refused(setting, path, f"other users of this machine may use that file: run chmod 600 {path}")
    line = content.strip()
    user, colon, password = line.partition(b":")
    if len(content) > _BYTES_MAX or not (user and colon and password) or not _is_plain(line):
        raise _refused(
            setting, path, f"expected USER:PASSWORD on one line, in ASCII without spaces; {_MAKE_ONE}"
        )
    return line.decode("ascii")


def _is_plain(line: bytes) -> bool:
    return all(0x20 < byte < 0x7F for byte in line)


def _refused(setting: str, path: str, reason: str) -> SettingError:
    return SettingError(f"{setting}={path!r} is not allowed: {reason}")


def make_digest_file(path: Path, user: str = "holdfast") -> None:
    """Write a new password into a file, unless the file exists. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, stat.S_IRUSR | stat.S_IWUSR)
    except FileExistsError:
        return
    with open(descriptor, "w") as file:
        file.write(f"{user}:{secrets.token_hex(32)}\n")
