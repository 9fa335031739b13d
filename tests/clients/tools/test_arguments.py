"""The admin tools' parsing of arguments and files, before they connect to a broker."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from holdfast_log.clients.tools.configs import assignments
from holdfast_log.clients.tools.partitions_file import (
    PlacedReplica,
    ReassignmentFile,
    assignments_json,
    read_partitions,
    read_reassignment,
    read_topics,
)
from holdfast_log.protocol.topic_partition import TopicPartition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("retention.ms=5", {"retention.ms": "5"}),
        ("a=1,b=[x,y], c = 2", {"a": "1", "b": "x,y", "c": "2"}),
        ("b=[x,y]", {"b": "x,y"}),
        ("a=", {"a": ""}),
    ],
)
def test_settings_to_add_are_parsed(text: str, expected: dict[str, str]) -> None:
    assert assignments(text) == expected


@pytest.mark.parametrize("text", ["a", "=1", "a=[1,2", "a=1,b"])
def test_malformed_settings_are_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="not of the form"):
        assignments(text)


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "partitions.json"
    path.write_text(text)
    return str(path)


def test_a_proposed_plan_can_be_read_back(tmp_path: Path) -> None:
    moves = {TopicPartition("t", 1): (1, 2), TopicPartition("t", 0): (2,)}
    path = written(tmp_path, assignments_json(moves))
    assert read_reassignment(path) == ReassignmentFile(moves)
    assert sorted(read_partitions(path)) == sorted(moves)


def test_the_directories_of_replicas_are_read_from_a_plan(tmp_path: Path) -> None:
    row = '{"topic": "t", "partition": 1, "replicas": [3, 1, 2], "log_dirs": ["any", "/d/2", "any"]}'
    found = read_reassignment(written(tmp_path, f'{{"version": 1, "partitions": [{row}]}}'))
    partition = TopicPartition("t", 1)
    assert found.replicas == {partition: (3, 1, 2)}
    assert found.directories == {PlacedReplica(1, partition): "/d/2"}


def test_the_topics_to_move_are_read_from_a_file(tmp_path: Path) -> None:
    assert read_topics(written(tmp_path, '{"topics": [{"topic": "a"}], "version": 1}')) == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"partitions": 1}',
        '{"partitions": [1]}',
        '{"partitions": [{"topic": "t"}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": "1"}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, '
        '{"topic": "t", "partition": 0, "replicas": [2]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": "/d"}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [1]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["any", "any"]}]}',
    ],
)
def test_a_malformed_file_is_named_in_the_error(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(click.UsageError, match=r"partitions\.json"):
        read_reassignment(path)


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="No such file"):
        read_partitions(str(tmp_path / "none.json"))
