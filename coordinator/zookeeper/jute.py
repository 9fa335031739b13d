"""Multi-operation requests in jute, ZooKeeper's wire format.

Kazoo's own multis build an object and make several calls for each operation, and it has none for reads: a
controller that takes over ten thousand partitions would spend more time there than on its decisions. The
classes here are requests for kazoo's connection, which serializes them in its own thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from holdfast_log.coordinator.zookeeper.access import AccessRule, ZnodeAccess, for_everybody
from holdfast_log.coordinator.zookeeper.interface import (
    AccessDenied,
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    OperationResult,
    RequestRefused,
    SetData,
    Stat,
    WriteOperation,
    ZooKeeperError,
)

_CREATE, _DELETE, _GET, _SET, _CHECK, _MULTI, _MULTI_READ, _ERROR = 1, 2, 4, 5, 13, 14, 22, -1

_int = Struct("!i")
_header = Struct("!i?i")
_stat = Struct("!qqqqiiiqiiq")
_END = _header.pack(-1, True, -1)
_EPHEMERAL, _SEQUENCE = 1, 2
_PERMISSION_READ, _PERMISSIONS_ALL = 1, 31


def _buffer(data: bytes) -> bytes:
    return _int.pack(len(data)) + data


def _string(text: str) -> bytes:
    return _buffer(text.encode())


def _entry(permissions: int, scheme: str, identity: str) -> bytes:
    return _int.pack(permissions) + _string(scheme) + _string(identity)


# "auth" stands for the identities by which the session has authenticated itself.
_CREATOR_ALL = _entry(_PERMISSIONS_ALL, "auth", "")
_LISTS = {
    ZnodeAccess.EVERYBODY: _int.pack(1) + _entry(_PERMISSIONS_ALL, "world", "anyone"),
    ZnodeAccess.READABLE: _int.pack(2) + _CREATOR_ALL + _entry(_PERMISSION_READ, "world", "anyone"),
    ZnodeAccess.CLOSED: _int.pack(1) + _CREATOR_ALL,
}
"""Access control lists as ZooKeeper reads them."""

_ROLLED_BACK = (0, -2)
"""The error codes of the operations before and after the one that failed."""
_KINDS: dict[int, type[ZooKeeperError]] = {
    -101: NoNode,
    -102: AccessDenied,
    -103: BadVersion,
    -110: NodeExists,
    -111: NotEmpty,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """ZooKeeper's error code in place of a result."""

    code: int

    def error(self, path: str) -> ZooKeeperError:
        kind = _KINDS.get(self.code)
        return RequestRefused(path, f"error {self.code}") if kind is None else kind(path)


ReadResult: TypeAlias = "tuple[bytes, Stat] | Refusal"
Made: TypeAlias = OperationResult | Refusal


@dataclass(frozen=True, slots=True)
class MultiRead:
    """Reads several znodes (ZooKeeper 3.6 and later). Result: a list of `ReadResult`."""

    paths: Sequence[str]
    type = _MULTI_READ

    def serialize(self) -> bytes:
        header = _header.pack(_GET, False, -1)
        parts = [header + _string(path) + b"\x00" for path in self.paths]
        return b"".join((*parts, _END))

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[ReadResult]:
        found: list[ReadResult] = []
        while True:
            kind, done, _ = _header.unpack_from(data, offset)
            offset += _header.size
            if done:
                return found
            if kind == _ERROR:
                found.append(Refusal(_int.unpack_from(data, offset)[0]))
                offset += _int.size
            else:
                content, offset = _read_buffer(data, offset)
                found.append((content, _read_stat(data, offset)))
                offset += _stat.size


def found_all(paths: Sequence[str], found: Sequence[ReadResult]) -> list[tuple[bytes, Stat] | None]:
    """The data and stat at each path, None if there is no znode. Raises `ZooKeeperError`."""
    results: list[tuple[bytes, Stat] | None] = []
    for path, each in zip(paths, found, strict=True):
        if not isinstance(each, Refusal):
            results.append(each)
            continue
        error = each.error(path)
        if not isinstance(error, NoNode):
            raise error
        results.append(None)
    return results


@dataclass(frozen=True, slots=True)
class MultiWrite:
    """Applies all operations or none. Result: a list of `Made`. `root` is prefixed to every path. `rule` says
    who may use the znodes that are created."""

    operations: Sequence[WriteOperation]
    root: str
    rule: AccessRule = for_everybody
    type = _MULTI

    def serialize(self) -> bytes:
        parts = []
        for operation in self.operations:
            path = _string(self.root + operation.path)
            match operation:
                case SetData(_, data, version):
                    parts.append(_header.pack(_SET, False, -1) + path + _buffer(data) + _int.pack(version))
                case Create(_, data, ephemeral, sequence):
                    flags = (_EPHEMERAL if ephemeral else 0) | (_SEQUENCE if sequence else 0)
                    acl = _LISTS[self.rule(operation.path)]
                    parts.append(_header.pack(_CREATE, False, -1) + path + _buffer(data) + acl)
                    parts.append(_int.pack(flags))
                case Delete(_, version):
                    parts.append(_header.pack(_DELETE, False, -1) + path + _int.pack(version))
                case Check(_, version):
                    parts.append(_header.pack(_CHECK, False, -1) + path + _int.pack(version))
        return b"".join((*parts, _END))

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Made]:
        made: list[Made] = []
        while True:
            kind, done, _ = _header.unpack_from(data, offset)
            offset += _header.size
            if done:
                return made
            if kind == _SET:
                made.append(_read_stat(data, offset))
                offset += _stat.size
            elif kind == _CREATE:
                path, offset = _read_buffer(data, offset)
                made.append(path.decode())
            elif kind == _ERROR:
                made.append(Refusal(_int.unpack_from(data, offset)[0]))
                offset += _int.size
            else:
                made.append(None)


def made_all(operations: Sequence[WriteOperation], root: str, made: Sequence[Made]) -> list[OperationResult]:
    """The results of a multi, with paths relative to `root`. Raises `MultiFailed`."""
    results: list[OperationResult] = []
    for index, each in enumerate(made):
        if isinstance(each, Refusal):
            if each.code not in _ROLLED_BACK:
                raise MultiFailed(index, each.error(operations[index].path))
        else:
            results.append(each[len(root) :] if isinstance(each, str) else each)
    return results


def _read_buffer(data: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = _int.unpack_from(data, offset)
    offset += _int.size
    if length <= 0:
        return b"", offset
    return bytes(data[offset : offset + length]), offset + length


def _read_stat(data: bytes, offset: int) -> Stat:
    czxid, mzxid, _, modified_ms, version, _, _, owner, _, _, _ = _stat.unpack_from(data, offset)
    return Stat(czxid, mzxid, version, owner, modified_ms)
