"""The data source on executors in other processes, which get Holdfast as one file from spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark

from holdfast_log import Admin, Message, NewTopic, Producer

HOME = Path(__file__).parents[2]
PACKAGE = HOME / "holdfast_log"
FOLDERS = ("protocol", "clients", "pipeline")
RECORDS = 40
TIMEOUT_S = 500

PROGRAM = """
import os
import sys
from holdfast_log import pipeline
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

bootstrap, folder = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
pipeline.register(spark)
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "deployed", "startingOffsets": "earliest"}

def where(batches):
    import pyarrow
    from holdfast_log import pipeline
    rows = sum(batch.num_rows for batch in batches)
    yield pyarrow.RecordBatch.from_pylist([{"rows": rows, "parent": os.getppid(), "file": pipeline.__file__}])

found = spark.read.format("holdfast").options(**options).load().mapInArrow(
    where, "rows bigint, parent bigint, file string"
).collect()
print("rows", sum(row.rows for row in found))
print("executors", len({row.parent for row in found}))
print("files", *sorted({row.file for row in found}))

writer = (
    spark.readStream.format("holdfast").options(**options).load().writeStream.format("parquet")
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True)
)
while True:
    try:
        writer.start(folder + "/out").awaitTermination()
        break
    except StreamingQueryException as error:
        # Spark gives the query's Python process up after 10 s, and no setting changes that.
        if "failed to connect back" not in str(error):
            raise
print("streamed", spark.read.parquet(folder + "/out").count())
spark.stop()
"""


def fill(bootstrap: str) -> None:
    """Create the topic that the program reads."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic("deployed", 4)])
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(RECORDS):
            producer.send(Message("deployed", value=str(number), partition=number % 4))


def zip_of_holdfast(folder: Path) -> Path:
    """The part of Holdfast that Spark needs, as one file for --py-files."""
    archive = folder / "holdfast.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in (
            HOME / "pyspark_holdfast.py",
            PACKAGE / "__init__.py",
            *(path for folder in FOLDERS for path in (PACKAGE / folder).rglob("*.py")),
        ):
            zipped.write(path, path.relative_to(HOME))
    return archive


def test_spark_submit_carries_the_data_source_to_executors_in_other_processes(
    bootstrap: str, tmp_path: Path
) -> None:
    fill(bootstrap)
    archive = zip_of_holdfast(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    spark = tmp_path / "spark"  # The standalone worker writes into a folder of its home.
    spark.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (spark / path.name).symlink_to(path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"SPARK_HOME": str(spark), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    done = subprocess.run(
        [
            spark / "bin" / "spark-submit", "--master", "local-cluster[2,1,1024]", "--py-files", archive,
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false",
            "--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.log.level=ERROR",
            # No task may start before both executors are there: the first could run them all.
            "--conf", "spark.cores.max=2", "--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0",
            "--conf", f"spark.scheduler.maxRegisteredResourcesWaitingTime={TIMEOUT_S}s",
            "--conf", f"spark.executor.extraJavaOptions={os.environ['SPARK_SUBMIT_OPTS']}",
            program, bootstrap, tmp_path,
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[:5000]}"
    found = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert (found["rows"], found["streamed"], found["executors"]) == (str(RECORDS), str(RECORDS), "2")
    assert found["files"].endswith("holdfast.zip/holdfast_log/pipeline/__init__.py"), found["files"]
