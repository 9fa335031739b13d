"""What a user is told whose PySpark lacks what Holdfast needs, or has found the data source by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSourceStreamReader

from holdfast_log import pipeline
from holdfast_log.pipeline.option_table import OptionError
from holdfast_log.pipeline.source import HoldfastDataSource

HOME = Path(__file__).parents[2]


def source() -> HoldfastDataSource:
    return HoldfastDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "flights"})


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.initialOffset(),
        lambda reader: reader.latestOffset(),
        lambda reader: reader.latestOffset({}, None),
        lambda reader: reader.partitions({}, {}),
    ],
)
def test_a_stream_on_a_pyspark_that_is_too_old_says_so_when_spark_asks_for_offsets(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[DataSourceStreamReader], Any]
) -> None:
    """PySpark 4.0 and 4.1 hide an error of `streamReader` behind an UnboundLocalError of their own."""
    monkeypatch.setitem(sys.modules, "holdfast_log.pipeline.stream_reader", cast(Any, None))
    reader = source().streamReader(source().schema())

    with pytest.raises(OptionError, match=r"readStream needs PySpark 4\.2 or later, and this is PySpark"):
        ask(reader)

    reader.stop()


def test_writing_on_a_pyspark_that_is_too_old_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holdfast_log.pipeline.sink.writers", cast(Any, None))

    with pytest.raises(OptionError, match=r"writing needs PySpark 4\.1 or later, and this is PySpark"):
        source().writer(source().schema(), overwrite=False)


def test_a_pyspark_without_data_sources_in_python_is_named() -> None:
    code = (
        "import sys\n"
        "sys.modules['pyspark.sql.datasource'] = None\n"
        "from holdfast_log import pipeline\n"
        "from types import SimpleNamespace\n"
        "pipeline.register(SimpleNamespace())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True, timeout=120)

    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: Holdfast's data source needs PySpark 4.0 or later, and this is")


@pytest.mark.parametrize(
    ("condition", "is_raised"), [("DATA_SOURCE_ALREADY_EXISTS", False), ("TABLE_OR_VIEW_NOT_FOUND", True)]
)
def test_a_source_that_spark_has_found_by_itself_may_be_registered(condition: str, is_raised: bool) -> None:
    class Refused(AnalysisException):
        def getCondition(self) -> str:
            return condition

    def register(found: type[HoldfastDataSource]) -> None:
        raise Refused("no")

    spark: Any = SimpleNamespace(dataSource=SimpleNamespace(register=register))
    if is_raised:
        with pytest.raises(Refused):
            pipeline.register(spark)
    else:
        pipeline.register(spark)


def test_overwriting_is_refused_with_the_mode_to_use() -> None:
    with pytest.raises(OptionError, match=r'although Spark offers it: use \.mode\("append"\)'):
        source().writer(source().schema(), overwrite=True)
