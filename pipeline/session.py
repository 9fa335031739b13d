"""Sets up a local Spark session whose workers find the same Python and packages as this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

_HOME = Path(__file__).parent.parent


def show_local_workers(spark: SparkSession) -> None:
    """Have a local session's workers run this Python, with Holdfast on its path.

    Left alone, a worker is whatever is called python3, which need not be the interpreter of the virtual
    environment that this process runs in; and it does not see a checkout that is on this process's path only.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None or not context.master.startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    paths = [str(_HOME), context.environment.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
    context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
