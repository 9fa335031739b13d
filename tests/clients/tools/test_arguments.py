"""The admin tools' parsing of arguments and files, before they connect to a broker."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from holdfast_log.clients.tools.configs import assignments
from holdfast_log.clients.tools.partitions_file import (
    assignments_json,
    read_assignments,
    read_partitions,
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
    assert read_assignments(path) == moves
    assert sorted(read_partitions(path)) == sorted(moves)


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
    ],
)
def test_a_malformed_file_is_named_in_the_error(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(click.UsageError, match=r"partitions\.json"):
        read_assignments(path)


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="No such file"):
        read_partitions(str(tmp_path / "none.json"))
