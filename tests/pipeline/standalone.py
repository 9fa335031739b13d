"""The data source on a standalone cluster of Spark: python -P -m tests.pipeline.standalone [--archive FILE].

Starts a broker, a standalone master and a worker on the loopback interface, and runs a program there by
spark-submit: a batch read and a streaming query, with one zip of Holdfast as --py-files, or with a packed
environment as --archives. Prints what the program has seen, and ends with 1 if rows are missing.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click
import pyspark

from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.coordinator.tools.zookeeper_process import die_with_parent, free_port
from tests.pipeline.test_deployment import PROGRAM, RECORDS, fill, zip_of_holdfast

_SPARK = Path(pyspark.__file__).parent
_TIMEOUT_S = 500.0


@contextmanager
def standalone(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The address of a master with one worker of two cores."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = (
        [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        [
            f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "2",
            "--memory", "1g", "--work-dir", str(folder / "work"), address,
        ],
    )  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []
    with (folder / "standalone.log").open("wb") as log:
        try:
            for command in commands:
                running.append(
                    subprocess.Popen(
                        [_SPARK / "bin" / "spark-class", *command],
                        env=environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        preexec_fn=die_with_parent,
                    )
                )
                _await_port(port, running[0])
            yield address
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(300)


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the standalone master has not started")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--archive", type=click.Path(path_type=Path, exists=True), help="A packed environment, for --archives."
)
def main(archive: Path | None) -> None:
    """Run a program on a standalone cluster, with Holdfast as one zip or in a packed environment."""
    with (
        tempfile.TemporaryDirectory(prefix="standalone-") as name,
        LocalCluster(Path(name) / "cluster") as cluster,
    ):
        folder = Path(name)
        fill(cluster.bootstrap)
        program = folder / "program.py"
        program.write_text(PROGRAM)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"SPARK_HOME": str(_SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}
        if archive is None:
            given, python = ["--py-files", str(zip_of_holdfast(folder))], sys.executable
        else:  # The driver is started here, so it needs the environment unpacked as executors have it.
            shutil.unpack_archive(archive, folder / "environment", "gztar", filter="tar")
            given = ["--archives", f"{archive.resolve()}#environment"]
            python = "./environment/bin/python"
        given += ["--conf", f"spark.pyspark.python={python}", "--conf", "spark.driver.host=127.0.0.1"]
        given += ["--conf", "spark.log.level=ERROR"]
        with standalone(folder, environment) as master:
            done = subprocess.run(
                [
                    _SPARK / "bin" / "spark-submit", "--master", master, *given,
                    program, cluster.bootstrap, folder,
                ],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )  # fmt: skip
        click.echo(done.stdout)
        found = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
        if done.returncode or {found.get("rows"), found.get("streamed")} != {str(RECORDS)}:
            click.echo(done.stderr[-6000:], err=True)
            sys.exit(1)


if __name__ == "__main__":
    main()
