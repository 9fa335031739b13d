"""The command line of the jobs: scripts/pipeline.sh JOB …"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast_log import pipeline
from holdfast_log.clients.errors import ClientError
from holdfast_log.pipeline.jobs.append import ForeignRecordsError
from holdfast_log.pipeline.jobs.bulk import BulkJob, bulk
from holdfast_log.pipeline.jobs.delta import jars_hint, load_delta, with_delta
from holdfast_log.pipeline.jobs.ledger import SupersededError
from holdfast_log.pipeline.jobs.load import LoadJob, load
from holdfast_log.pipeline.jobs.page import page_of, read_reports, write_report
from holdfast_log.pipeline.jobs.run import JobError, JobReport
from holdfast_log.pipeline.jobs.snapshot import SnapshotJob, follow, snapshot
from holdfast_log.pipeline.jobs.tables import TableShape
from holdfast_log.pipeline.jobs.transform import TransformJob, transform
from holdfast_log.pipeline.offsets import DataLossError
from holdfast_log.pipeline.option_table import OptionError
from holdfast_log.protocol.errors import BrokerError

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True}
_EXPECTED = (
    JobError,
    SupersededError,
    ForeignRecordsError,
    OptionError,
    DataLossError,
    ClientError,
    BrokerError,
    PySparkException,
)

Command = Callable[..., Any]
StartSession = Callable[[SparkSession.Builder], SparkSession]


@click.group(context_settings=_CONTEXT)
def main() -> None:
    """Move whole topics between Holdfast and files. Each job may be killed anywhere and run again."""


def _options(*options: Command) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_CLUSTER = (
    click.option("--bootstrap-server", "bootstrap", metavar="HOST:PORT", required=True, help="Brokers."),
    click.option(
        "--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property of the clients."
    ),
)
_SOURCE = (
    click.option("--topic", "topics", metavar="TOPIC[,TOPIC]", help="Topics to read."),
    click.option("--topic-pattern", "pattern", metavar="REGEX", help="Read the topics that match."),
    click.option(
        "--from", "start", default="earliest", metavar="WHERE",
        help='Where the first run begins: earliest, latest, or JSON {"topic": {"0": 23}}.',
    ),
    click.option("--max-offsets", type=click.IntRange(1), help="Take at most so many offsets in one run."),
    click.option("--min-tasks", type=click.IntRange(1), help="Divide large partitions into so many tasks."),
    click.option("--allow-data-loss", is_flag=True, help="Skip records that are already deleted."),
)  # fmt: skip
_ENDING = (
    click.option("--report", type=click.Path(path_type=Path), help="Add a line of JSON to this file."),
    click.option("--master", default=None, help="The Spark master. [default: local[*]]"),
)  # fmt: skip
_PATH = click.Path(path_type=Path)


@main.command("load")
@_options(*_CLUSTER, *_SOURCE)
@click.option("--output", type=_PATH, required=True, help="Folder of the table.")
@click.option(
    "--format", "kind", type=click.Choice(["parquet", "delta"]), default="parquet", help="Of the table."
)
@click.option("--schema", help="Fields of JSON values, as DDL or Spark's JSON; @FILE reads it from a file.")
@click.option(
    "--bad-records", type=click.Choice(["fail", "keep"]), default="fail", help="Values that are no such JSON."
)
@click.option("--partition-by", default="", metavar="COLUMNS", help="Such as date,carrier.")
@click.option("--headers", is_flag=True, help="Keep the column headers, if there is no schema.")
@_options(*_ENDING)
def load_command(
    output: Path,
    kind: str,
    schema: str | None,
    bad_records: str,
    partition_by: str,
    headers: bool,
    max_offsets: int | None,
    report: Path | None,
    master: str | None,
    **source: Any,
) -> None:
    """Topics to Parquet, or to a Delta table: each run adds what is new.

    The folder _holdfast beside the data has small files that say which offsets and data files count. Read a
    table of Parquet files by holdfast_log.pipeline.jobs.tables.read_table, which leaves out what killed runs
    left behind.
    """
    shape = TableShape(_text(schema), bad_records == "keep", _names(partition_by))
    given = _source(**source) | {"includeHeaders": str(headers and schema is None).lower()}
    job = LoadJob(given, output, shape, max_offsets)
    if kind == "delta":
        _run("load", output, report, master, lambda spark: load_delta(spark, job), _delta_session)
    else:
        _run("load", output, report, master, lambda spark: load(spark, job))


@main.command("snapshot")
@_options(*_CLUSTER, *_SOURCE)
@click.option("--output", type=_PATH, required=True, help="Folder of the table.")
@click.option("--follow", "is_following", is_flag=True, help="Keep the table up to date until Ctrl-C.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.1),
    default=10.0,
    metavar="SECONDS",
    help="With --follow: least time between the starts of two runs.",
)
@_options(*_ENDING)
def snapshot_command(
    output: Path,
    is_following: bool,
    every_s: float,
    max_offsets: int | None,
    report: Path | None,
    master: str | None,
    **source: Any,
) -> None:
    """A compacted topic to a table with one row for each key; each run brings it up to date."""
    job = SnapshotJob(_source(**source), output, max_offsets)

    def work(spark: SparkSession) -> Iterable[JobReport]:
        return follow(spark, job, every_s) if is_following else (snapshot(spark, job),)

    _run_all("snapshot", output, report, master, work)


@main.command("bulk")
@_options(*_CLUSTER)
@click.option("--files", type=_PATH, required=True, help="A file, or a folder of files.")
@click.option(
    "--format", "kind", type=click.Choice(["parquet", "csv"]), default="parquet", help="Of the files."
)
@click.option("--topic", required=True, help="Topic to write to; nothing else may write to it meanwhile.")
@click.option("--state", type=_PATH, required=True, help="Folder for what was loaded; one for each load.")
@click.option("--key", help="SQL expression of the files' columns.")
@click.option("--value", help="SQL expression of the files' columns. [default: all columns, as JSON]")
@click.option(
    "--headers", help="SQL expression of the type array<struct<key string, value binary>>. [default: none]"
)
@click.option("--timestamp", help="SQL expression: a time, or ms since 1970. [default: now]")
@click.option("--schema", help="Columns of the files, as DDL. [default: theirs]")
@_options(*_ENDING)
def bulk_command(
    bootstrap: str,
    properties: Sequence[str],
    files: Path,
    kind: str,
    topic: str,
    state: Path,
    key: str | None,
    value: str | None,
    headers: str | None,
    timestamp: str | None,
    schema: str | None,
    report: Path | None,
    master: str | None,
) -> None:
    """Parquet or CSV files to a topic: each row once. A second run continues the first."""
    client = {"bootstrap.servers": bootstrap, **_properties(properties)}
    job = BulkJob(client, topic, files, state, kind, key, value, _text(schema), headers, timestamp)
    _run("bulk", state, report, master, lambda spark: bulk(spark, job))


@main.command("transform")
@_options(*_CLUSTER, *_SOURCE)
@click.option(
    "--to", "target", required=True, help="Topic to write to; nothing else may write to it meanwhile."
)
@click.option("--state", type=_PATH, required=True, help="Folder for what was taken; one for each transform.")
@click.option("--key", default="key", help="SQL expression of the source's columns.")
@click.option("--value", default="value", help="SQL expression of the source's columns.")
@click.option("--headers", default="headers", help="SQL expression of the source's columns.")
@click.option("--timestamp", default="timestamp", help="SQL expression: a time, or ms since 1970.")
@click.option("--where", help="SQL condition.")
@click.option(
    "--function", metavar="MODULE:NAME", help="Python function from DataFrame to DataFrame, instead."
)
@_options(*_ENDING)
def transform_command(
    target: str,
    state: Path,
    key: str,
    value: str,
    headers: str,
    timestamp: str,
    where: str | None,
    function: str | None,
    max_offsets: int | None,
    report: Path | None,
    master: str | None,
    **source: Any,
) -> None:
    """One topic to another: each record that is made is written once. Each run takes what is new."""
    given = _source(**source)
    job = TransformJob(given, target, state, key, value, where, function, max_offsets, headers, timestamp)
    _run("transform", state, report, master, lambda spark: transform(spark, job))


@main.command("page")
@click.argument("reports", type=_PATH)
@click.option("--output", type=_PATH, required=True, help="The HTML file to write.")
def page_command(reports: Path, output: Path) -> None:
    """Write an HTML page with plots of the runs in a file that --report has written."""
    try:
        output.write_text(page_of(read_reports(reports)), encoding="utf-8")
    except JobError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"wrote {output}")


def _source(
    *,
    bootstrap: str,
    properties: Sequence[str],
    topics: str | None,
    pattern: str | None,
    start: str,
    min_tasks: int | None,
    allow_data_loss: bool,
) -> dict[str, str]:
    """The options of the data source for a job's options."""
    if (topics is None) == (pattern is None):
        raise click.UsageError("give either --topic or --topic-pattern")
    chosen = {"subscribe": topics} if topics is not None else {"subscribePattern": pattern or ""}
    given = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": start, **chosen}
    given |= {f"kafka.{name}": value for name, value in _properties(properties).items()}
    given |= {"failOnDataLoss": str(not allow_data_loss).lower()}
    return given | ({"minPartitions": str(min_tasks)} if min_tasks else {})


def _properties(given: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise click.UsageError(f"--property {wrong[0]}: expected NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _text(given: str | None) -> str | None:
    return Path(given[1:]).read_text(encoding="utf-8") if given and given.startswith("@") else given


@contextmanager
def _session(job: str, master: str | None, start: StartSession) -> Iterator[SparkSession]:
    builder = SparkSession.builder.appName(f"holdfast {job}").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    spark = start(builder.master(master) if master else builder)
    spark.sparkContext.setLogLevel("ERROR")
    pipeline.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def _plain_session(builder: SparkSession.Builder) -> SparkSession:
    return builder.getOrCreate()


def _delta_session(builder: SparkSession.Builder) -> SparkSession:
    extended = with_delta(builder)
    try:
        return extended.getOrCreate()
    except PySparkException as error:
        raise JobError(f"no session with Delta: {error}. {jars_hint()}.") from None


def _run(
    job: str,
    output: Path,
    path: Path | None,
    master: str | None,
    work: Callable[[SparkSession], JobReport],
    start: StartSession = _plain_session,
) -> None:
    _run_all(job, output, path, master, lambda spark: (work(spark),), start)


def _run_all(
    job: str,
    output: Path,
    path: Path | None,
    master: str | None,
    work: Callable[[SparkSession], Iterable[JobReport]],
    start: StartSession = _plain_session,
) -> None:
    """Print and write each report as soon as it is there. Ends the process with 130 at Ctrl-C."""
    try:
        with _session(job, master, start) as spark:
            for report in work(spark):
                if path is not None:
                    write_report(report, path)
                click.echo("\n".join(report.lines))
    except _EXPECTED as error:
        if path is not None:
            _write_failure(job, output, path, error)
        raise click.ClickException(f"{job} failed: {error}") from None
    except KeyboardInterrupt:
        click.echo(f"{job} was interrupted: what its last run published counts, nothing else.", err=True)
        sys.exit(130)


def _write_failure(job: str, output: Path, path: Path, error: Exception) -> None:
    failure: Mapping[str, Any] = {"type": type(error).__name__}
    write_report(JobReport(job, "", str(output), 0.0, error=str(error), details=dict(failure)), path)


if __name__ == "__main__":
    main(prog_name="pipeline.sh")
