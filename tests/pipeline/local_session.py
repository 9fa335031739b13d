"""The Spark sessions of tests and drills: local, quiet, and with Holdfast's source and sink."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast_log import pipeline

_WARM_DAEMON = "tests.pipeline.sink.warm_daemon"
_WARM_PYTHON = Path(__file__).parent / "sink" / "warm_python.sh"


def local_session(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    """A session on loopback without a user interface. `master` is local[C] or local[C,F]: C cores, and F - 1
    failures of a task before its job fails."""
    builder = (
        SparkSession.builder.appName(name)
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    pipeline.register(spark)
    return spark


def warm_environment() -> dict[str, str]:
    """The variables with which Spark starts such workers: `sink.warm_daemon` says why, and how."""
    return {"PYSPARK_PYTHON": str(_WARM_PYTHON), "WARM_PYTHON": sys.executable}


def warm_session(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    """The same with Python workers that need not import anything."""
    wanted = warm_environment()
    before = {variable: os.environ.get(variable) for variable in wanted}
    os.environ.update(wanted)  # Spark's Java process keeps the environment that it is started with.
    try:
        return local_session(name, master, {**settings, "spark.python.daemon.module": _WARM_DAEMON})
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value
