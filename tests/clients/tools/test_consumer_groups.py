"""consumer-groups.sh parses its arguments, without a broker."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast_log.clients.admin import (
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    GroupDescription,
    MemberDescription,
)
from holdfast_log.clients.connection.cluster_view import Node
from holdfast_log.clients.tools.consumer_groups import consumer_groups
from holdfast_log.clients.tools.group_reports import members_report, state_report
from holdfast_log.clients.tools.moments import parse_moment, parse_time
from holdfast_log.clients.tools.offset_reset import parse_duration, parse_topics, read_csv, to_csv
from holdfast_log.clients.tools.table import table
from holdfast_log.protocol.topic_partition import TopicPartition

HERE = TopicPartition("flights", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "one of --list, --describe, --delete, --delete-offsets, --reset-offsets"),
        (("--describe",), "needs either --group or --all-groups"),
        (("--describe", "--group", "g", "--all-groups"), "needs either --group or --all-groups"),
        (("--reset-offsets", "--group", "g", "--topic", "t"), "needs exactly one of --to-earliest"),
        (("--reset-offsets", "--group", "g", "--to-latest"), "needs either --topic or --all-topics"),
        (
            ("--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--to-earliest"),
            "needs exactly one of",
        ),
        (
            ("--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--execute", "--dry-run"),
            "exclude each other",
        ),
        (("--delete-offsets", "--group", "g"), "--delete-offsets needs --topic"),
        (
            ("--reset-offsets", "--group", "g", "--all-topics", "--to-datetime", "yesterday"),
            "YYYY-MM-DDTHH:mm:SS.sss",
        ),
    ],
)
def test_contradictory_options_are_refused_before_a_broker_is_asked(
    arguments: tuple[str, ...], message: str
) -> None:
    result = CliRunner().invoke(consumer_groups, ["--bootstrap-server", "localhost:1", *arguments])

    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("PT1H30M", 5_400_000), ("P7D", 604_800_000), ("PT0.5S", 500), ("P1DT1S", 86_401_000), ("-PT1S", -1000)],
)
def test_an_iso_8601_duration_is_parsed(text: str, wanted: int) -> None:
    assert parse_duration(text) == wanted


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="PnDTnHnMnS"):
        parse_duration(text)


def test_times_without_a_zone_are_in_utc() -> None:
    assert parse_moment("1970-01-01T00:00:01.500", "--to-datetime") == 1500
    assert parse_moment("1970-01-01T01:00:00+01:00", "--to-datetime") == 0
    assert parse_time("1970-01-01T00:00:01.500", "--from-time") == parse_time("1500", "--from-time") == 1500


def test_topics_with_and_without_partitions_are_parsed() -> None:
    assert parse_topics(["a", "b:0,2"]) == {"a": None, "b": [0, 2]}
    with pytest.raises(click.UsageError, match="topic:0,1,2"):
        parse_topics(["b:x"])


@pytest.mark.parametrize("plans", [{"g": {HERE: 3}}, {"g": {HERE: 3}, "h": {HERE: 4}}])
def test_a_plan_is_written_and_read(plans: dict[str, dict[TopicPartition, int]], tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(to_csv(plans))

    assert read_csv(str(path), list(plans)) == plans


@pytest.mark.parametrize(
    ("row", "message"),
    [("flights,0", "line 1 is not of the form topic"), ("h,flights,0,1", "the group h is not among --group")],
)
def test_a_malformed_plan_is_refused_with_the_reason(row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(row)
    with pytest.raises(click.ClickException, match=message):
        read_csv(str(path), ["g"])
    with pytest.raises(click.ClickException, match="No such file"):
        read_csv(str(tmp_path / "none"), ["g"])


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = table(("GROUP", "LAG"), [("a-group-of-a-long-name", 1), ("g", None)])

    assert text.splitlines() == [
        "GROUP                  LAG",
        "a-group-of-a-long-name 1",
        "g                      -",
    ]


def test_epochs_and_targets_are_shown_where_a_group_of_kip_848_is_among_them() -> None:
    node = Node(1, "localhost", 9092, None)
    there = TopicPartition("flights", 1)
    members = (MemberDescription("m", None, "app", "/h", (HERE,)),)
    old = GroupDescription("old", "Stable", "consumer", "range", members, node)
    new = GroupDescription("new", "Reconciling", "consumer", "uniform", members, node)
    member = ConsumerMemberDescription(
        "m", None, "app", "/h", None, 6, ("flights",), None, (HERE,), (HERE, there), False
    )
    details = {"new": ConsumerGroupDescription("new", "Reconciling", 8, 7, "uniform", (member,), node)}

    described = members_report([old, new], True, details)
    assert described.titles[-4:] == ("ASSIGNMENT", "CURRENT-EPOCH", "TARGET-EPOCH", "TARGET-ASSIGNMENT")
    assert [row[-4:] for row in described.rows] == [
        ("flights(0)", None, None, None),
        ("flights(0)", 6, 7, "flights(0,1)"),
    ]
    assert members_report([old], True).titles[-1] == "ASSIGNMENT"

    states = state_report([old, new], details)
    assert states.titles[-3:] == ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS")
    assert [row[-3:] for row in states.rows] == [(None, None, 1), (8, 7, 1)]
    assert state_report([old]).titles == state_report([old, new]).titles != states.titles
