"""Sets up a local Spark session whose workers find the same Python and packages as this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

_HOME = Path(__file__).parent.parent


def show_local_workers(spark: SparkSession) -> None:
    """Make the workers of a local session run this Python, with Holdfast on their import path.

    By default a worker runs python3 from PATH, which may not be the interpreter of this process's virtual
    environment, and does not find a checkout that is only on this process's import path.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None or not context.master.startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    paths = [str(_HOME), context.environment.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
    context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
