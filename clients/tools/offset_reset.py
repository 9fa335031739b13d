"""consumer-groups.sh --reset-offsets: parsing of partitions and targets, and the new offsets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import click

from holdfast_log.clients.admin import EARLIEST, LATEST, Admin
from holdfast_log.protocol.topic_partition import TopicPartition

_DURATION = re.compile(
    r"(?P<sign>-?)P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_NO_RECORD = -1


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The target of a reset: exactly one of these is set. `moment_ms` is in ms since the epoch; `file` is the
    path of a CSV file with an offset for each partition."""

    earliest: bool = False
    latest: bool = False
    current: bool = False
    moment_ms: int | None = None
    shift_by: int | None = None
    offset: int | None = None
    file: str | None = None


def new_offsets(
    admin: Admin,
    target: ResetTarget,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The new offset of each partition, between the first and the end offset of its log.

    As in Kafka, a partition without a committed offset counts as committed at its end.
    """
    wanted = list(partitions)
    first = _offsets(admin, wanted, EARLIEST)
    last = _offsets(admin, wanted, LATEST)
    if target.earliest:
        return first
    if target.latest:
        return last
    current = {partition: committed.get(partition, last[partition]) for partition in wanted}
    if target.current:
        return current
    if target.moment_ms is not None:
        found = _offsets(admin, wanted, target.moment_ms)
        return {
            partition: last[partition] if offset == _NO_RECORD else offset
            for partition, offset in found.items()
        }
    if target.shift_by is not None:
        moved = {partition: offset + target.shift_by for partition, offset in current.items()}
    else:
        assert target.offset is not None
        moved = dict.fromkeys(wanted, target.offset)
    return {
        partition: _within(partition, offset, first[partition], last[partition])
        for partition, offset in moved.items()
    }


def _offsets(admin: Admin, partitions: list[TopicPartition], moment: int) -> dict[TopicPartition, int]:
    found = admin.list_offsets(dict.fromkeys(partitions, moment))
    return {partition: found[partition].offset for partition in partitions}


def _within(partition: TopicPartition, offset: int, first: int, last: int) -> int:
    """`offset` bounded to [`first`, `last`]; prints a warning if it lies outside."""
    bounded = max(first, min(offset, last))
    if bounded != offset:
        side = "lower than the earliest" if offset < first else "higher than the latest"
        click.echo(
            f"WARN: New offset ({offset}) of {partition} is {side} offset. Value will be set to {bounded}.",
            err=True,
        )
    return bounded


def parse_duration(text: str) -> int:
    """`PnDTnHnMnS` as ms."""
    match = _DURATION.fullmatch(text)
    parts = {} if match is None else match.groupdict()
    amounts = [parts.get(unit) for unit in ("days", "hours", "minutes", "seconds")]
    if not any(amounts):
        raise click.UsageError(
            f"--by-duration {text!r} is not of the form PnDTnHnMnS, such as PT1H30M or P7D"
        )
    days, hours, minutes, seconds = (float(amount or 0) for amount in amounts)
    duration_ms = int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
    return -duration_ms if parts["sign"] else duration_ms


def parse_topics(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """`topic` or `topic:0,1,2` as topics and the numbers of their partitions; None for all of them."""
    chosen: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        try:
            chosen[topic] = [int(number) for number in numbers.split(",")] if colon else None
        except ValueError:
            raise click.UsageError(f"--topic {text!r} is not of the form topic or topic:0,1,2") from None
    return chosen


def to_csv(plans: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """The CSV that --export prints and --from-file reads: rows topic,partition,offset, or
    group,topic,partition,offset for several groups."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group_id, offsets in plans.items():
        for (topic, number), offset in sorted(offsets.items()):
            row = (topic, number, offset)
            writer.writerow(row if len(plans) == 1 else (group_id, *row))
    return out.getvalue()


def read_csv(path: str, group_ids: list[str]) -> dict[str, dict[TopicPartition, int]]:
    """The new offsets of each group in a CSV file written by `to_csv`. Raises click.ClickException."""
    plans: dict[str, dict[TopicPartition, int]] = {group_id: {} for group_id in group_ids}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for place, row in enumerate(csv.reader(file), 1):
                if row:
                    _read_row(plans, row, group_ids, f"{path}, line {place}")
    except OSError as error:
        raise click.ClickException(f"--from-file {path}: {error.strerror}") from None
    return plans


def _read_row(
    plans: dict[str, dict[TopicPartition, int]], row: list[str], group_ids: list[str], where: str
) -> None:
    fields = [field.strip() for field in row]
    if len(fields) == 3 and len(group_ids) == 1:
        fields = [group_ids[0], *fields]
    try:
        group_id, topic, number, offset = fields
        plans[group_id][TopicPartition(topic, int(number))] = int(offset)
    except ValueError:
        form = "topic,partition,offset" if len(group_ids) == 1 else "group,topic,partition,offset"
        raise click.ClickException(f"{where} is not of the form {form}: {','.join(row)}") from None
    except KeyError:
        raise click.ClickException(f"{where}: the group {fields[0]} is not among --group") from None
