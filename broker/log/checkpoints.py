"""Small files beside the logs: offsets per partition, leader epochs, a broker's and a partition's identity.

All are text files in Kafka's formats. The functions here encode and decode them; the log and its manager
write the files. A decoder raises `ValueError` for an incomplete or damaged file.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from protocol.topic_partition import TopicPartition

_VERSION = "0"


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """`recovery-point-`, `replication-` and `log-start-offset-checkpoint`: version, count, lines."""
    lines = [f"{partition.topic} {partition.partition} {offset}" for partition, offset in offsets.items()]
    return _encode_lines(lines)


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    offsets = {}
    for line in _decode_lines(data):
        topic, partition, offset = line.split()
        offsets[TopicPartition(topic, int(partition))] = int(offset)
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


def _encode_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode()


def _decode_lines(data: bytes) -> list[str]:
    version, count, *lines = data.decode().splitlines() or ["", ""]
    if version != _VERSION:
        raise ValueError(f"unsupported checkpoint version {version!r}")
    if len(lines) != int(count) or not data.endswith(b"\n"):
        raise ValueError(f"the file announces {count} entries, but has {len(lines)}")
    return lines


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Owner of a log directory. A broker refuses to start on a directory that belongs to another."""

    broker_id: int
    cluster_id: str | None


def encode_meta_properties(meta: MetaProperties) -> bytes:
    lines = ["#", f"broker.id={meta.broker_id}", "version=0"]
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    values = _decode_properties(data, "=")
    if values.get("version") != "0":
        raise ValueError(f"unsupported version {values.get('version')!r} of meta.properties")
    return MetaProperties(int(values["broker.id"]), values.get("cluster.id"))


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """`partition.metadata`: the id of the topic to which the data in a directory belongs."""
    return f"version: 0\ntopic_id: {_encode_topic_id(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> uuid.UUID:
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
