"""Small files beside the logs: offsets per partition, leader epochs, a broker's and a partition's identity.

The files are text in Kafka's formats. This module encodes and decodes text; the log and its manager decide
when to write which file. A decoder raises `ValueError` for a file that was written only in part, or whose
checksum does not match.

Each file ends with a CRC-32C, placed where Kafka's readers ignore it. Kafka's `CheckpointFile` reads every
line as an entry, but splits it at white space. So the last line ends with 32 white-space characters: a space
for each 0 bit of the checksum, a tab for each 1 bit. Kafka's `PartitionMetadataFile` reads two lines, so a
third line holds the checksum. A file without a checksum is accepted, because Kafka and earlier versions of
Holdfast write none.

Each line of a checkpoint of offsets has a tag for the topic's id in the same way: a topic may be deleted and
created again before the next checkpoint, and the entries of its former log say nothing about the new one.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.topic_partition import TopicPartition

_VERSION = "0"
_BLANKS = str.maketrans("01", " \t")
_METADATA_SEAL = "\nchecksum: "
_SEAL_SIZE = 32
"""Length of a checksum in white-space characters."""


class OffsetEntry(NamedTuple):
    """A partition's entry in a checkpoint of offsets. `tag` is the `topic_tag` of the topic's id; empty in
    the files of Kafka and of earlier versions of Holdfast."""

    offset: int
    tag: str = ""

    def may_be_of(self, topic_id: uuid.UUID | None) -> bool:
        """Whether the entry may be about the topic with this id; None if the id is unknown."""
        return not self.tag or topic_id is None or self.tag == topic_tag(topic_id)


@lru_cache(maxsize=10_000)
def topic_tag(topic_id: uuid.UUID | None) -> str:
    """The CRC-32C of a topic's id as white space; empty without an id."""
    return "" if topic_id is None else _as_blanks(crc32c(topic_id.bytes))


def encode_offsets(offsets: Mapping[TopicPartition, OffsetEntry]) -> bytes:
    """`recovery-point-`, `replication-` and `log-start-offset-checkpoint`: version, count, lines."""
    return _encode_lines([offset_line(*each) for each in offsets.items()])


def offset_line(partition: TopicPartition, entry: OffsetEntry) -> str:
    """A partition's line in a checkpoint of offsets."""
    return f"{partition.topic} {partition.partition} {entry.offset}{entry.tag}"


class OffsetsEncoder:
    """Encodes a checkpoint repeatedly, and formats only the lines that have changed since the last time."""

    def __init__(self) -> None:
        self._lines: dict[TopicPartition, tuple[OffsetEntry, str]] = {}
        """The last encoded content: partition → (entry, line)."""

    def encode(self, offsets: Mapping[TopicPartition, OffsetEntry]) -> bytes:
        """What `encode_offsets` returns."""
        before = self._lines
        self._lines = lines = {}
        for partition, entry in offsets.items():
            known = before.get(partition)
            if known is None or known[0] != entry:
                known = (entry, offset_line(partition, entry))
            lines[partition] = known
        return _encode_lines([line for _, line in lines.values()])


def decode_offsets(data: bytes) -> dict[TopicPartition, OffsetEntry]:
    offsets = {}
    for line in _decode_lines(data):
        topic, partition, offset = line.split()
        tag = line[len(line.rstrip()) :]
        if len(tag) not in (0, _SEAL_SIZE):
            raise ValueError(f"{topic}-{partition} has a tag of {len(tag)} characters")
        offsets[TopicPartition(topic, int(partition))] = OffsetEntry(int(offset), tag)
    return offsets


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """`leader-epoch-checkpoint`: version, count, then a line with epoch and start offset for each entry."""
    return _encode_lines([f"{epoch} {offset}" for epoch, offset in entries])


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for line in _decode_lines(data):
        epoch, offset = (int(word) for word in line.split())
        if entries and (epoch <= entries[-1][0] or offset < entries[-1][1]):
            raise ValueError(f"leader epoch {epoch} at {offset} is out of order")
        entries.append((epoch, offset))
    return entries


def encode_offset(offset: int) -> bytes:
    """`cleaner-mapped-offset`: version, count, then a line with the offset."""
    return _encode_lines([str(offset)])


def decode_offset(data: bytes) -> int:
    (line,) = _decode_lines(data)
    return int(line)


def _encode_lines(lines: list[str]) -> bytes:
    text = "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines))
    return f"{text[:-1]}{_seal(text) if lines else ''}\n".encode()


def _seal(text: str) -> str:
    return _as_blanks(crc32c(text.encode()))


def _as_blanks(checksum: int) -> str:
    return f"{checksum:0{_SEAL_SIZE}b}".translate(_BLANKS)


def _decode_lines(data: bytes) -> list[str]:
    text = data.decode()
    content = text
    if text.endswith((" \n", "\t\n")):
        content = f"{text[: -_SEAL_SIZE - 1]}\n"
        if text != f"{content[:-1]}{_seal(content)}\n":
            raise ValueError("its checksum does not match its content")
    version, count, *lines = content.splitlines() or ["", ""]
    if version != _VERSION:
        raise ValueError(f"unsupported checkpoint version {version!r}")
    if len(lines) != int(count) or not data.endswith(b"\n"):
        raise ValueError(f"the file announces {count} entries, but has {len(lines)}")
    return lines


DIRECTORY_VERSION = 0
"""The version of a log directory, in meta.properties and in the file with its id. Raise it with whatever code
of before would misread: that code refuses the directory."""


class LaterVersion(ValueError):
    """A log directory of a version that is later than this code knows."""


def _check_version(text: str | None) -> None:
    """Raises LaterVersion, and ValueError for what is no version."""
    if text is None or not text.isdecimal():
        raise ValueError(f"{text!r} is no version")
    if int(text) > DIRECTORY_VERSION:
        raise LaterVersion(
            f"is of version {int(text)}, and this version of Holdfast knows those up to {DIRECTORY_VERSION}"
        )


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Owner of a log directory. A broker refuses to start on a directory that belongs to another."""

    broker_id: int
    cluster_id: str | None


def encode_meta_properties(meta: MetaProperties) -> bytes:
    lines = ["#", f"broker.id={meta.broker_id}", f"version={DIRECTORY_VERSION}"]
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    values = _decode_properties(data, "=")
    _check_version(values.get("version"))
    return MetaProperties(int(values["broker.id"]), values.get("cluster.id"))


def encode_directory_id(directory_id: str) -> bytes:
    """`.holdfast-directory`: the id of a log directory."""
    checksum = f"{crc32c(directory_id.encode()):08x}"
    lines = (f"version: {DIRECTORY_VERSION}", f"directory_id: {directory_id}", f"checksum: {checksum}")
    return "".join(f"{line}\n" for line in lines).encode()


def decode_directory_id(data: bytes) -> str:
    version, *rest = (line.partition(": ")[2] for line in data.decode().splitlines())
    _check_version(version)
    directory_id, checksum = rest
    if checksum != f"{crc32c(directory_id.encode()):08x}":
        raise ValueError("its checksum does not match its content")
    return directory_id


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """`partition.metadata`: the id of the topic whose data a directory holds."""
    text = f"version: 0\ntopic_id: {_encode_topic_id(topic_id)}"
    return f"{text}{_METADATA_SEAL}{crc32c(text.encode()):08x}\n".encode()


def decode_partition_metadata(data: bytes) -> uuid.UUID:
    text, seal, checksum = data.decode().partition(_METADATA_SEAL)
    if seal and checksum != f"{crc32c(text.encode()):08x}\n":
        raise ValueError("its checksum does not match its content")
    values = _decode_properties(data, ":")
    if values.get("version") != "0":
        raise ValueError(f"unsupported version {values.get('version')!r} of partition.metadata")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(values["topic_id"] + "=="))


def _encode_topic_id(topic_id: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _decode_properties(data: bytes, separator: str) -> dict[str, str]:
    lines = [line.strip() for line in data.decode().splitlines()]
    pairs = [line.partition(separator) for line in lines if line and not line.startswith("#")]
    values = {key.strip(): value.strip() for key, _, value in pairs}
    for key in ("broker.id", "topic_id"):
        if key in values:
            return values
    raise ValueError("the file names neither a broker nor a cluster")
