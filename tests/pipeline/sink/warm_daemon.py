"""PySpark's worker daemon with everything imported that a worker of tests and drills needs.

Spark starts a Python worker for each plan, for each commit of a micro-batch, and after each task that failed.
Importing PySpark, PyArrow and Holdfast takes each of them about a second of processor time. Forked from this
daemon they have them already, so a micro-batch takes a third of the time. Not for users: PySpark imports
after the fork, because a library may start threads when it is imported. These do not, with one thread for
OpenBLAS. Spark's setting spark.python.daemon.module is for the workers of tasks, and `warm_python.sh` for
those of plans and commits. Workers that import everything themselves are those of `test_deployment.py` and
`test_installation.py` in tests/pipeline.
"""

from __future__ import annotations

import importlib
import os

_NEEDED = (
    "pyarrow.compute",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.worker",
    "tests.pipeline.sink.faulty",
    "tests.pipeline.source_drill_faults",
)


def main() -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in _NEEDED:
        importlib.import_module(name)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
