"""Sets up a local Spark session whose workers find the same Python and packages as this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

_HOME = Path(__file__).parents[2]
_INSTALLED = ("site-packages", "dist-packages")
"""Folders that Python finds by itself. As a path they would hide packages of another environment."""


def show_workers(spark: SparkSession) -> None:
    """Make Python processes that Spark starts find Holdfast, and those of a local session run this Python.

    By default a local worker runs python3 from PATH, which may not be the interpreter of this process's
    virtual environment, and does not find a checkout that is only on this process's import path.

    On a cluster, executors have what spark-submit gives them. But Spark runs a streaming source in a Python
    process of its own beside the driver, and does not give that process the files of --py-files.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return
    environment = context.environment
    if not context.master.startswith("local"):
        if _HOME.name not in _INSTALLED:
            environment["PYTHONPATH"] = _joined(str(_HOME), environment.get("PYTHONPATH", ""))
        return
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    environment["PYTHONPATH"] = _joined(
        str(_HOME), environment.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")
    )


def _joined(*paths: str) -> str:
    return os.pathsep.join(dict.fromkeys(filter(None, paths)))
