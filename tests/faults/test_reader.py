"""The comparison of replicas compares their log bytes, not their segment files."""

from __future__ import annotations

from pathlib import Path

from tests.faults.reader import diverged


def write(directory: Path, partition: int, segments: dict[str, bytes]) -> None:
    folder = directory / f"t-{partition}"
    folder.mkdir(parents=True)
    for name, content in segments.items():
        (folder / name).write_bytes(content)


def test_a_partition_with_a_differing_replica_is_named(tmp_path: Path) -> None:
    replicas = [tmp_path / str(number) for number in range(3)]
    for number, directory in enumerate(replicas):
        write(directory, 0, {"00.log": b"ab", "02.log": b"c"})
        write(directory, 1, {"00.log": b"abc" if number < 2 else b"abd"})
        write(directory, 2, {"00.log": b"abc"[: 3 - number]})

    assert diverged(replicas, "t", 3) == ["t-1", "t-2"]


def test_replicas_may_split_segments_at_different_offsets(tmp_path: Path) -> None:
    write(tmp_path / "1", 0, {"00.log": b"ab", "02.log": b"c", "02.index": b"here"})
    write(tmp_path / "2", 0, {"00.log": b"abc"})

    assert diverged([tmp_path / "1", tmp_path / "2"], "t", 1) == []
